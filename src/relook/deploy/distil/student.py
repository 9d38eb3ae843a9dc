"""Fine-tuning a network on images without labels, with a policy's predictions as targets.

The student is trained on the plain image, as in use, or its mirror image if the policy has mirrored
views. Statistics of BatchNorm stay fixed. The result is a running mean of the weights, from the
epoch that comes nearest to the targets of images held back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from relook.errors import RelookError
from relook.foundation.progress import Progress
from relook.io.fingerprint import fingerprint
from relook.models.checkpoint import epoch_order, load_state, save_state
from relook.models.hf_models import Logits
from relook.models.predictors import TorchPredictor
from relook.models.small import SmallNet, save_small
from relook.models.weights import save_tensors
from relook.numerics.arrays import FloatArray
from relook.numerics.randomness import Stream, check_seed, uniforms
from relook.policy import Policy
from relook.transforms import TRANSFORMS

HELD_BACK = 0.1
"""The share of the images that selects the epoch."""

FEWEST = 20  # images

_DECAY = 0.99  # of the running mean of weights, per step
_WARM_UP = 10  # steps, in which that mean is shorter
_MIRROR_SLOT = 2**31 + 2  # after the slots of `relook.models.checkpoint`
_HELD_SLOT = _MIRROR_SLOT + 1
_CHANNELS_LAST: Any = torch.channels_last  # faster convolutions, the same values
_TEMPERATURES = np.geomspace(0.2, 5.0, 200)


@dataclass(frozen=True)
class Training:
    """The settings of a student's training."""

    epochs: int = 12
    learning_rate: float = 3e-4
    batch: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        if self.epochs < 1 or self.batch < 2:
            raise RelookError(
                f"expected at least 1 epoch and batches of at least 2 images, got {self.epochs} "
                f"and {self.batch}"
            )
        if not 0 < self.learning_rate < math.inf:
            raise RelookError(f"expected a learning rate above 0, got {self.learning_rate:g}")


@dataclass(frozen=True)
class Epoch:
    """An epoch's mean loss, and the distance of the mean weights to the targets held back.

    Both are Kullback-Leibler divergences.
    """

    loss: float
    held_back: float


@dataclass(frozen=True)
class Student:
    """A network with new weights, its epochs, and the epoch that they are from: 0 for none.

    `before` is the distance of the old weights to the targets; at the two `temperatures`, the old
    and the new weights come nearest to them.
    """

    predictor: TorchPredictor
    epochs: tuple[Epoch, ...]
    kept_epoch: int
    before: float
    temperatures: tuple[float, float]


def trainable(predictor: object) -> TorchPredictor:
    """Return a predictor whose network can be fine-tuned, or raise."""
    if isinstance(predictor, TorchPredictor) and any(
        weights.is_floating_point() for weights in predictor.module.parameters()
    ):
        return predictor
    raise RelookError(
        f"expected one torch network to fine-tune, got a {type(predictor).__name__}: an ONNX file, "
        "a function and an ensemble cannot be; give the network that it was made from, as "
        "timm:NAME@FILE, torch:MODULE:FACTORY@FILE, cifar:NAME@FILE or hf:DIR"
    )


@dataclass(frozen=True)
class Lesson:
    """Plain images, uint8 `[n, c, h, w]`, and a policy's predictions of them.

    `targets` are probabilities `[n, class]`; with `mirrored`, they hold for mirror images too.
    """

    images: Tensor
    targets: FloatArray
    mirrored: bool

    def held_back(self, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the indices of images to learn from, and of those held back."""
        count = len(self.targets)
        if count < FEWEST:
            raise RelookError(f"expected at least {FEWEST} images to learn from, got {count}")
        lots = uniforms(seed, image=np.arange(count), slot=_HELD_SLOT, stream=Stream.TRAIN)
        order = np.argsort(lots, kind="stable")
        held = max(2, round(HELD_BACK * count))
        return np.sort(order[held:]), np.sort(order[:held])

    def batches(
        self, places: NDArray[np.int64], settings: Training, epoch: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images and targets in the epoch's order, in batches of nearly one size."""
        order = places[epoch_order(len(places), settings.seed, epoch).numpy()]
        slot: Any = {"slot": _MIRROR_SLOT, "stream": Stream.TRAIN}
        for batch in np.array_split(order, math.ceil(len(order) / settings.batch)):
            images = self.images[torch.from_numpy(batch)]
            if self.mirrored:
                mirror = uniforms(settings.seed, image=batch, view=epoch, **slot) < 0.5
                chosen = torch.from_numpy(mirror)[:, None, None, None]
                images = torch.where(chosen, images.flip(3), images)
            yield images, torch.from_numpy(self.targets[batch]).float()


def is_mirrored(policy: Policy) -> bool:
    """Whether a view of the policy is, or may be, a mirror image."""
    return any(
        "flip" in TRANSFORMS[step.transform].draws
        and (step.fixed_draws is None or step.fixed_draws["flip"] == 1)
        for sub in policy
        for step in sub.all_steps
    )


def train_student(
    predictor: TorchPredictor,
    lesson: Lesson,
    settings: Training,
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Student:
    """Return a copy of the network that is trained on the targets; the network does not change.

    The state is written to the file `checkpoint` after each epoch, from which the same call resumes
    to the same weights. `progress` counts images.
    """
    learn, held = lesson.held_back(settings.seed)
    measure = partial(_distance, lesson.images[torch.from_numpy(held)], lesson.targets[held])
    before, temperature = measure(predictor)
    own = _Networks(predictor.module)
    optimizer = torch.optim.Adam(own.student.parameters(), lr=settings.learning_rate)
    found: list[float] = []
    mark = ""
    if checkpoint is not None:
        mark = fingerprint(predictor.fingerprint, lesson.targets, asdict(settings))
        found += load_state(checkpoint, own, optimizer, mark)
    steps = math.ceil(len(learn) / settings.batch)

    def rate(step: int) -> float:
        """Return the learning rate of a step: a cosine that falls to 0."""
        done = step / (settings.epochs * steps)
        return settings.learning_rate * (1 + math.cos(math.pi * done)) / 2

    for epoch in range(len(found) // 2, settings.epochs):
        batches = enumerate(lesson.batches(learn, settings, epoch), start=epoch * steps)
        loss = _run_epoch(predictor, own, optimizer, batches, temperature, rate)
        distance, _ = measure(copy_of(predictor, own.average))
        if not math.isfinite(loss) or not math.isfinite(distance):
            raise RelookError(
                f"the loss is {loss} after epoch {epoch + 1}: lower learning_rate (--learning-rate)"
            )
        if distance < min([before, *found[1::2]]):
            own.best.load_state_dict(own.average.state_dict())
        found += [loss, distance]
        if checkpoint is not None:
            save_state(checkpoint, own, optimizer, found, mark)
        if progress is not None:
            progress((epoch + 1) * len(learn), settings.epochs * len(learn))
    epochs = tuple(Epoch(*pair) for pair in zip(found[::2], found[1::2], strict=True))
    kept = int(np.argmin([before, *found[1::2]]))
    best = copy_of(predictor, own.best)
    return Student(best, epochs, kept, before, (temperature, measure(best)[1]))


def save_weights(predictor: TorchPredictor, path: Path) -> None:
    """Write a network's weights as safetensors, with the keys of its own state dict."""
    if isinstance(predictor.module, SmallNet):
        save_small(predictor.module, path)
    else:
        save_tensors(path, own_network(predictor).state_dict())


def own_network(predictor: TorchPredictor) -> nn.Module:
    """Return the user's own network, without relook's wrapper."""
    module = predictor.module
    return module.network if isinstance(module, Logits) else module


def copy_of(predictor: TorchPredictor, module: nn.Module | None = None) -> TorchPredictor:
    """Return a predictor like another, with the given module or a copy of its own."""
    mean, std = predictor.normalisation
    return TorchPredictor(
        deepcopy(predictor.module) if module is None else module,
        mean=mean,
        std=std,
        outputs=predictor.outputs,
        classes=predictor.classes,
        input=predictor.input,
    )


class _Networks(nn.Module):
    """The student, the running mean of its weights, and that mean after the best epoch."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.student, self.average, self.best = (deepcopy(module).eval() for _ in range(3))
        self.student.to(memory_format=_CHANNELS_LAST)  # type: ignore[call-overload]
        for weights in self.student.parameters():
            weights.requires_grad_(weights.is_floating_point())

    def follow(self, step: int) -> None:
        """Move the running mean towards the student's weights and statistics."""
        share = 1 - min(_DECAY, step / (step + _WARM_UP))
        student = self.student.state_dict()
        with torch.no_grad():
            for name, mean in self.average.state_dict().items():
                if mean.is_floating_point():
                    mean.lerp_(student[name], share)
                else:
                    mean.copy_(student[name])


def _run_epoch(
    predictor: TorchPredictor,
    own: _Networks,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[tuple[int, tuple[Tensor, Tensor]]],
    temperature: float,
    rate: Callable[[int], float],
) -> float:
    """Make one step per batch; return the mean distance to the targets per image."""
    total, done = 0.0, 0
    half = predictor.device.type == "cuda" and torch.cuda.is_bf16_supported()
    for step, (images, targets) in batches:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        targets = targets.to(predictor.device)
        with torch.autocast(predictor.device.type, dtype=torch.bfloat16, enabled=half):
            inputs = predictor.inputs(images).contiguous(memory_format=_CHANNELS_LAST)
            results: Tensor = own.student(inputs)
        results = results.float()
        if predictor.outputs == "probabilities":
            results = results.clamp_min(1e-12).log()
        loss = -(targets * (results / temperature).log_softmax(dim=1)).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        own.follow(step + 1)
        total += (loss.item() - float(_entropy(targets))) * len(images)
        done += len(images)
    return total / done


def _entropy(targets: Tensor) -> Tensor:
    return -torch.xlogy(targets, targets).sum(dim=1).mean()


def _distance(
    images: Tensor, targets: FloatArray, predictor: TorchPredictor
) -> tuple[float, float]:
    """Return the divergence of plain predictions from targets at the best temperature, and that."""
    log_probs = torch.cat([predictor(part) for part in torch.split(images, 256)]).double()
    wanted = torch.from_numpy(targets)
    entropy = float(_entropy(wanted))
    values = [
        -float((wanted * (log_probs / t).log_softmax(dim=1)).sum(dim=1).mean()) - entropy
        for t in _TEMPERATURES
    ]
    best = int(np.argmin(values))
    return values[best], float(_TEMPERATURES[best])
