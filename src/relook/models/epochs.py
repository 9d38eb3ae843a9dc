"""What an epoch of a training leaves to chance: all of it follows from the seed and the epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from relook.numerics.randomness import Stream, uniforms

_ORDER_SLOT = 2**31  # away from the slots of the augmentation
_LAYER_SLOT = _ORDER_SLOT + 1


def epoch_order(images: int, seed: int, epoch: int) -> Tensor:
    """Return all indices in an order of the epoch's own."""
    lots = uniforms(
        seed, image=np.arange(images), view=epoch, slot=_ORDER_SLOT, stream=Stream.TRAIN
    )
    return torch.from_numpy(np.argsort(lots, kind="stable"))


@contextmanager
def seeded_layers(network: nn.Module, seed: int, epoch: int) -> Iterator[None]:
    """Let dropout draw from the seed and the epoch; the global generators are put back after."""
    device = next(network.parameters()).device
    lot = uniforms(seed, view=epoch, slot=_LAYER_SLOT, stream=Stream.TRAIN)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(lot * 2**53))
        yield
