"""The training loop, with the paper's optimiser and schedule (appendix A), for any network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from relook.data import Dataset
from relook.errors import RelookError, unknown_name
from relook.foundation.progress import part_of
from relook.io.fingerprint import fingerprint
from relook.models.checkpoint import epoch_order, load_state, save_state, seeded_layers
from relook.numerics.randomness import check_seed
from relook.policy.recipes import Recipe, get_recipe
from relook.studies.training.randaugment import LENGTH, MAGNITUDE, randaugment_batch
from relook.version import __version__

AUGMENTS = ("randaugment", "crop_flip", "none")
HALVINGS = 12
SECONDS = 10.0
"""The least time between two checkpoints."""

_MOMENTUM = 0.9
_BATCHES_AT_ONCE = 16

Network = TypeVar("Network", bound=nn.Module)
Progress = Callable[[int, float], None]
"""Called after each epoch with the number of finished epochs and the mean loss."""

Steps = Callable[[int, int, float], None]
"""Called after each step with the images done in all epochs, their total, the batch's loss."""


@dataclass(frozen=True)
class Training:
    """The settings that determine a training, besides initial weights and data.

    `augment` is the paper's RandAugment (`length` transforms, magnitudes uniform on
    [0, `magnitude`], between the recipe's start and finish), only the recipe's crop and flip,
    or nothing. `mean` and `std` normalise inputs, which are in 0…1.
    """

    epochs: int
    recipe: Recipe
    seed: int = 0
    augment: str = "randaugment"
    length: int = LENGTH
    magnitude: float = MAGNITUDE
    learning_rate: float = 0.1
    weight_decay: float = 5e-4
    batch: int = 128
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name, value in (("epochs", self.epochs), ("batch", self.batch)):
            if value < 1:
                raise RelookError(f"expected {name} of at least 1, got {value}")
        if self.augment not in AUGMENTS:
            raise unknown_name("augmentation", self.augment, AUGMENTS)
        if not 0 <= self.magnitude <= 60 or self.length < 0:
            raise RelookError(
                "expected a magnitude from 0 to 60 and a length of at least 0 transforms, "
                f"got {self.magnitude:g} and {self.length}"
            )
        if not 0 < self.learning_rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise RelookError(
                "expected a learning rate above 0 and a weight decay of at least 0, "
                f"got {self.learning_rate:g} and {self.weight_decay:g}"
            )


def train(
    network: Network,
    dataset: Dataset,
    *,
    epochs: int,
    seed: int,
    recipe: Recipe | str,
    augment: str = "randaugment",
    learning_rate: float = 0.1,
    weight_decay: float = 5e-4,
    batch: int = 128,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Network:
    """Return a trained copy of the network, in eval mode; the network itself is not changed.

    The network takes float images in 0…1, `[n, c, h, w]`, and returns logits. `augment` is
    the paper's RandAugment, only the recipe's crop (and flip), or nothing. The order of the
    images, the augmentation and dropout depend only on the seed, as does the result on one
    machine with the same number of threads. `threads` limits those of PyTorch meanwhile; None
    keeps its setting. A small network is fastest with one, especially if other programs keep the
    cores busy.
    """
    settings = Training(
        epochs,
        get_recipe(recipe),
        seed,
        augment,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        batch=batch,
    )
    return run_training(network, dataset, settings, threads=threads, progress=progress)[0]


def run_training(
    network: Network,
    dataset: Dataset,
    settings: Training,
    *,
    checkpoint: Path | None = None,
    seconds: float = SECONDS,
    threads: int | None = None,
    progress: Progress | None = None,
    steps: Steps | None = None,
) -> tuple[Network, tuple[float, ...]]:
    """Train a copy of the network as `train` does; return it with each epoch's mean loss.

    The state is saved to the file `checkpoint` after an epoch if `seconds` have passed since the
    last time, and at the end; the same call resumes from it.
    """
    if threads is not None and threads < 1:
        raise RelookError(f"expected threads of at least 1, got {threads}")
    trained = deepcopy(network).train()
    optimizer = torch.optim.SGD(
        trained.parameters(),
        lr=settings.learning_rate,
        momentum=_MOMENTUM,
        weight_decay=settings.weight_decay,
    )
    losses: list[float] = []
    identity = ""
    if checkpoint is not None:
        weights = dict(network.state_dict())
        identity = fingerprint(__version__, weights, dataset.fingerprint, asdict(settings))
        losses += load_state(checkpoint, trained, optimizer, identity)
    images, written = dataset.plain, time.monotonic()
    with _threads(threads):
        for epoch in range(len(losses), settings.epochs):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * schedule(epoch, settings.epochs)
            with seeded_layers(trained, settings.seed, epoch):
                batches = _batches(images, dataset.labels, settings, epoch)
                report = part_of(steps, epoch * len(images), settings.epochs * len(images))
                losses.append(_run_epoch(trained, optimizer, batches, settings, report))
            if not math.isfinite(losses[-1]):
                raise RelookError(
                    f"the loss is {losses[-1]} after epoch {epoch + 1}: lower the learning rate"
                )
            if progress is not None:
                progress(epoch + 1, losses[-1])
            due = epoch + 1 == settings.epochs or time.monotonic() - written >= seconds
            if checkpoint is not None and due:
                save_state(checkpoint, trained, optimizer, losses, identity)
                written = time.monotonic()
    return trained.eval(), tuple(losses)


def schedule(epoch: int, epochs: int) -> float:
    """Return the learning rate's factor: halved 12 times, at equal distances."""
    return 0.5 ** math.floor((HALVINGS + 1) * epoch / epochs)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(before if count is None else count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _run_epoch(
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[tuple[Tensor, Tensor]],
    settings: Training,
    report: Steps | None,
) -> float:
    """Make one step per batch; return the mean loss per image."""
    device = next(network.parameters()).device
    mean, std = (
        torch.tensor(values, device=device)[:, None, None]
        for values in (settings.mean, settings.std)
    )
    total, done = 0.0, 0
    for views, labels in batches:
        inputs = (views.to(device).float() / 255 - mean) / std
        loss = F.cross_entropy(network(inputs), labels.to(device))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        value = loss.item()
        total += value * len(views)
        done += len(views)
        if report is not None:
            report(done, done, value)
    return total / done


def _batches(
    images: Tensor, labels: NDArray[np.int64], settings: Training, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield views and labels, a batch at a time, in the epoch's order.

    Batches are of nearly equal size; several are augmented together, with the same result.
    """
    order = epoch_order(len(images), settings.seed, epoch)
    batches = order.tensor_split(math.ceil(len(images) / settings.batch))
    for begin in range(0, len(batches), _BATCHES_AT_ONCE):
        together = batches[begin : begin + _BATCHES_AT_ONCE]
        chosen = torch.cat(together)
        views = _augmented(images[chosen], chosen.numpy(), settings, epoch)
        ends = np.cumsum([len(batch) for batch in together])[:-1].tolist()
        targets = torch.from_numpy(labels)[chosen]
        yield from zip(views.tensor_split(ends), targets.tensor_split(ends), strict=True)


def _augmented(
    images: Tensor, indices: NDArray[np.int64], settings: Training, epoch: int
) -> Tensor:
    if settings.augment == "none":
        return images
    return randaugment_batch(
        images,
        recipe=settings.recipe,
        seed=settings.seed,
        epoch=epoch,
        indices=indices,
        length=settings.length if settings.augment == "randaugment" else 0,
        magnitude=settings.magnitude,
    )
