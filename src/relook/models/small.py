"""A small convolutional network that trains in seconds on a CPU: the demo's model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from relook.errors import FileFormatError, RelookError
from relook.models.weights import drawn_network, read_tensors, save_tensors

_FORMAT = "relook-small-1"
_LIMITS = {"channels": 3, "classes": 100_000, "width": 1024}


class SmallNet(nn.Module):
    """Four convolutions with BatchNorm and ReLU, global average pooling, logits.

    Takes float images in 0…1, `[n, channels, h, w]`, of at least 16 pixels per side, best 32.
    `new_small` draws the weights from a seed.
    """

    def __init__(self, channels: int = 1, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        for name, value in (("channels", channels), ("classes", classes), ("width", width)):
            if not 1 <= value <= _LIMITS[name]:
                raise RelookError(f"expected {name} from 1 to {_LIMITS[name]}, got {value}")
        self.channels, self.classes, self.width = channels, classes, width
        self.features = nn.Sequential(
            *_block(channels, width, stride=2),
            *_block(width, 2 * width, stride=2),
            *_block(2 * width, 2 * width, stride=1),
            *_block(2 * width, 4 * width, stride=2),
        )
        self.head = nn.Linear(4 * width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        logits: Tensor = self.head(self.features(images - 0.5).mean(dim=(2, 3)))
        return logits


def _block(inputs: int, outputs: int, stride: int) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return convolution, nn.BatchNorm2d(outputs), nn.ReLU()


def new_small(channels: int = 1, classes: int = 10, *, width: int = 16, seed: int = 0) -> SmallNet:
    """Return a network with weights drawn from the seed alone (He et al., fan-in)."""
    return drawn_network(lambda: SmallNet(channels, classes, width), seed)


def save_small(network: SmallNet, path: str | Path) -> None:
    """Write the network as safetensors with its shape as metadata, whole or not at all."""
    shape = {name: getattr(network, name) for name in _LIMITS}
    save_tensors(path, network.state_dict(), **{_FORMAT: shape})


def load_small(path: str | Path) -> SmallNet:
    """Read a network that `save_small` wrote; it is in eval mode."""
    path = Path(path)
    if not path.is_file():
        raise RelookError(f"no such checkpoint: {path}")
    tensors, metadata = read_tensors(path)
    shape = _shape(path, metadata)
    with torch.device("meta"):
        network = SmallNet(**shape)
    expected = {name: (t.dtype, t.shape) for name, t in network.state_dict().items()}
    if expected != {name: (t.dtype, t.shape) for name, t in tensors.items()}:
        raise FileFormatError(f"{path}: its tensors are not those of a small network of {shape}")
    network.load_state_dict(tensors, assign=True)
    return network.eval()


def _shape(path: Path, metadata: Mapping[str, str]) -> dict[str, int]:
    """Return the network's sizes in the metadata, or raise."""
    if _FORMAT not in metadata:
        raise FileFormatError(
            f"{path}: expected a small network, but its metadata has no {_FORMAT!r}: "
            "load other networks with torch:MODULE:FACTORY@FILE"
        )
    try:
        shape = json.loads(metadata[_FORMAT])
    except (ValueError, RecursionError):
        shape = None
    if not isinstance(shape, dict) or shape.keys() != _LIMITS.keys():
        raise FileFormatError(f"{path}: expected {', '.join(_LIMITS)} as JSON in its metadata")
    for name, value in shape.items():
        if type(value) is not int or not 1 <= value <= _LIMITS[name]:
            raise FileFormatError(
                f"{path}: expected {name} from 1 to {_LIMITS[name]}, got {value!r:.40}"
            )
    return shape
