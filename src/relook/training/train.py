"""A small training loop: the paper's optimiser and schedule (appendix A), any network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from relook.data import Dataset
from relook.errors import RelookError, unknown_name
from relook.randomness import Stream, check_seed, uniforms
from relook.recipes import Recipe, get_recipe
from relook.training.randaugment import LENGTH, randaugment_batch

AUGMENTS = ("randaugment", "crop_flip", "none")
HALVINGS = 12
_MOMENTUM = 0.9
_ORDER_SLOT = 2**31  # away from the slots of the augmentation
_IMAGES_AT_ONCE = 2048

Network = TypeVar("Network", bound=nn.Module)
Progress = Callable[[int, float], None]
"""Called after each epoch with how many are done and the mean loss."""


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
    """Return a trained copy of the network, in eval mode; the network itself is left alone.

    The network takes float images in 0…1, `[n, c, h, w]`, and returns logits. `augment` is
    the paper's RandAugment, only the recipe's crop (and flip), or nothing. The order of the
    images and the augmentation depend on the seed alone, and so does the result on one
    machine and number of threads, if the network draws nothing itself (dropout does).
    `threads` is how many PyTorch may use meanwhile; None leaves its own setting. A small
    network is fastest with one, by far where other programs keep the cores busy.
    """
    _check(epochs, batch, threads, augment)
    seed, recipe = check_seed(seed), get_recipe(recipe)
    trained = deepcopy(network).train()
    optimizer = torch.optim.SGD(
        trained.parameters(), lr=learning_rate, momentum=_MOMENTUM, weight_decay=weight_decay
    )
    with _threads(threads):
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * schedule(epoch, epochs)
            images = _augmented(dataset.plain, augment, recipe, seed, epoch)
            batches = _batches(len(dataset), batch, seed, epoch)
            loss = _run_epoch(trained, optimizer, images, dataset.labels, batches)
            _report(epoch + 1, loss, progress)
    return trained.eval()


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
    images: Tensor,
    labels: NDArray[np.int64],
    batches: tuple[Tensor, ...],
) -> float:
    """Make one step a batch; return the mean loss of an image."""
    device = next(network.parameters()).device
    total = 0.0
    for chosen in batches:
        inputs = images[chosen].to(device).float() / 255
        targets = torch.from_numpy(labels)[chosen].to(device)
        loss = F.cross_entropy(network(inputs), targets)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        total += loss.item() * len(chosen)
    return total / len(images)


def _check(epochs: int, batch: int, threads: int | None, augment: str) -> None:
    for name, value in (("epochs", epochs), ("batch", batch), ("threads", threads)):
        if value is not None and value < 1:
            raise RelookError(f"expected {name} of at least 1, got {value}")
    if augment not in AUGMENTS:
        raise unknown_name("augmentation", augment, AUGMENTS)


def _report(done: int, loss: float, progress: Progress | None) -> None:
    if not math.isfinite(loss):
        raise RelookError(f"the loss is {loss} after epoch {done}: lower the learning rate")
    if progress is not None:
        progress(done, loss)


def _augmented(images: Tensor, augment: str, recipe: Recipe, seed: int, epoch: int) -> Tensor:
    """Return all images as one epoch sees them, some thousand at a time."""
    if augment == "none":
        return images
    length = LENGTH if augment == "randaugment" else 0
    parts = np.array_split(np.arange(len(images)), math.ceil(len(images) / _IMAGES_AT_ONCE))
    return torch.cat(
        [
            randaugment_batch(
                images[torch.from_numpy(part)],
                recipe=recipe,
                seed=seed,
                epoch=epoch,
                indices=part,
                length=length,
            )
            for part in parts
        ]
    )


def _batches(images: int, batch: int, seed: int, epoch: int) -> tuple[Tensor, ...]:
    """Split all indices, in an order of the epoch's own, into batches of nearly one size."""
    lots = uniforms(
        seed, image=np.arange(images), view=epoch, slot=_ORDER_SLOT, stream=Stream.TRAIN
    )
    order = torch.from_numpy(np.argsort(lots, kind="stable"))
    return order.tensor_split(math.ceil(images / batch))
