"""The CIFAR networks: ResNets (He et al.), and the paper's VGG16, PreResNet110, WideResNet28x10.

The names of their weights are those of public code: Idelbayev's `pytorch_resnet_cifar10` for
the ResNets, `timgaripov/swa` for the paper's three. Inputs are normalised images
`[n, 3, 32, 32]`; outputs are logits `[n, class]`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.registry import by_name
from relook.models.base import InputSpec, Predictor
from relook.models.predictors import ModelOptions
from relook.models.weights import load_weights, read_weights, rows_of, undrawn_network


def _convolution(inputs: int, outputs: int, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=bias)


def _stages(
    block: Callable[[int, int, int], nn.Module], inputs: int, widths: tuple[int, ...], blocks: int
) -> list[nn.Sequential]:
    """Return one stage of `blocks` blocks for each width; the later ones halve the image."""
    stages = []
    for number, width in enumerate(widths):
        first = block(inputs, width, 1 if number == 0 else 2)
        rest = [block(width, width, 1) for _ in range(blocks - 1)]
        stages.append(nn.Sequential(first, *rest))
        inputs = width
    return stages


class _Residual(nn.Module):
    """Two convolutions; if the shape changes, the shortcut has no weights (option A)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = _convolution(outputs, outputs), nn.BatchNorm2d(outputs)
        self.stride, self.padding = stride, (outputs - inputs) // 2

    def forward(self, images: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(images)))))
        # Every second pixel, padded with as many channels of zeros before as after.
        kept = images[:, :, :: self.stride, :: self.stride]
        shortcut = F.pad(kept, (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(inner + shortcut)


class CifarResNet(nn.Module):
    """A ResNet of 6·blocks + 2 layers."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = _convolution(3, 16), nn.BatchNorm2d(16)
        self.layer1, self.layer2, self.layer3 = _stages(_Residual, 16, (16, 32, 64), blocks)
        self.linear = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        features = self.layer1(F.relu(self.bn1(self.conv1(images))))
        pooled = self.layer3(self.layer2(features)).mean(dim=(2, 3))
        logits: Tensor = self.linear(pooled)
        return logits


class _Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions, each after BatchNorm and ReLU; nothing after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        width = outputs // 4
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, bias=False)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), _convolution(width, width, stride)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), nn.Conv2d(width, outputs, 1, bias=False)
        self.downsample = _projection(inputs, outputs, stride, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.conv1(F.relu(self.bn1(images)))
        inner = self.conv2(F.relu(self.bn2(inner)))
        inner = self.conv3(F.relu(self.bn3(inner)))
        total: Tensor = inner + self.downsample(images)
        return total


def _projection(inputs: int, outputs: int, stride: int, *, bias: bool) -> nn.Sequential:
    """Return a 1×1 convolution if the shape changes, else the identity."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=bias))


class PreResNet(nn.Module):
    """A ResNet with pre-activation and bottlenecks, of 9·blocks + 2 layers."""

    def __init__(self, blocks: int, classes: int) -> None:
        super().__init__()
        self.conv1 = _convolution(3, 16)
        self.layer1, self.layer2, self.layer3 = _stages(_Bottleneck, 16, (64, 128, 256), blocks)
        self.bn = nn.BatchNorm2d(256)
        self.fc = nn.Linear(256, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        features = self.layer3(self.layer2(self.layer1(self.conv1(images))))
        logits: Tensor = self.fc(F.relu(self.bn(features)).mean(dim=(2, 3)))
        return logits


class _Wide(nn.Module):
    """Two wide convolutions with pre-activation and biases; the second has the stride."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), _convolution(inputs, outputs, bias=True)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.conv2 = _convolution(outputs, outputs, stride, bias=True)
        self.shortcut = _projection(inputs, outputs, stride, bias=True)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.conv2(F.relu(self.bn2(self.conv1(F.relu(self.bn1(images))))))
        total: Tensor = inner + self.shortcut(images)
        return total


class WideResNet(nn.Module):
    """A WideResNet of 6·blocks + 4 layers, `factor` times as wide as a ResNet."""

    def __init__(self, blocks: int, factor: int, classes: int) -> None:
        super().__init__()
        widths = (16 * factor, 32 * factor, 64 * factor)
        self.conv1 = _convolution(3, 16, bias=True)
        self.layer1, self.layer2, self.layer3 = _stages(_Wide, 16, widths, blocks)
        self.bn1 = nn.BatchNorm2d(widths[-1])
        self.linear = nn.Linear(widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        features = self.layer3(self.layer2(self.layer1(self.conv1(images))))
        logits: Tensor = self.linear(F.relu(self.bn1(features)).mean(dim=(2, 3)))
        return logits


class Vgg(nn.Module):
    """VGG with BatchNorm: `groups` of (convolutions, width), each ended by a pooling by 2."""

    def __init__(self, groups: tuple[tuple[int, int], ...], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for count, width in groups:
            for _ in range(count):
                convolution = _convolution(inputs, width, bias=True)
                layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        head = [nn.Dropout(), nn.Linear(inputs, 512), nn.ReLU()]
        head += [nn.Dropout(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, classes)]
        self.classifier = nn.Sequential(*head)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        logits: Tensor = self.classifier(self.features(images).flatten(1))
        return logits


IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
_VGG16 = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


@dataclass(frozen=True)
class CifarNetwork:
    """One row: `build` takes a number of classes; `head` names the last layer."""

    name: str
    build: Callable[[int], nn.Module]
    head: str
    normalisation: tuple[tuple[float, ...], tuple[float, ...]]
    """Mean and std that the public code trains with."""


def _resnet(blocks: int) -> CifarNetwork:
    name = f"resnet{6 * blocks + 2}"
    return CifarNetwork(name, lambda classes: CifarResNet(blocks, classes), "linear", IMAGENET)


_ROWS = (
    _resnet(3),
    _resnet(5),
    _resnet(7),
    _resnet(9),
    CifarNetwork("vgg16", lambda classes: Vgg(_VGG16, classes), "classifier.6", IMAGENET),
    CifarNetwork("preresnet110", lambda classes: PreResNet(12, classes), "fc", CIFAR),
    CifarNetwork("wrn28x10", lambda classes: WideResNet(4, 10, classes), "linear", CIFAR),
)


CIFAR_NETWORKS = by_name(_ROWS)
"""All CIFAR networks by name."""

CIFAR_FORM = f"cifar:{'|'.join(CIFAR_NETWORKS)}@checkpoint"
_SIZE = (32, 32)


def load_cifar(rest: str, options: ModelOptions) -> Predictor:
    """Load a CIFAR network; the number of classes is the checkpoint's.

    Mean and std are those that the network's public code trains with, unless the options override
    them.
    """
    options.refuse("cifar:", "pretrained")
    name, _, checkpoint = rest.partition("@")
    if not name or not checkpoint:
        raise RelookError(f"expected a model as {CIFAR_FORM}, got 'cifar:{rest}'")
    row = CIFAR_NETWORKS.get(name)
    if row is None:
        raise unknown_name("CIFAR network", name, CIFAR_NETWORKS)
    weights = read_weights(checkpoint)
    classes = rows_of(weights, row.head)
    if classes is None:
        raise FileFormatError(
            f"{checkpoint}: its weights do not fit the network: expected {row.head}.weight, "
            f"the last layer of {name}; check that it is the network that was saved"
        )
    network = undrawn_network(lambda: row.build(classes))
    load_weights(network, weights, checkpoint)
    mean, std = row.normalisation
    known = InputSpec(_SIZE, crop=1.0, channels=3)
    return options.predictor(network, known=known, mean=mean, std=std, classes=classes)
