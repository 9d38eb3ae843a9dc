"""In which order images and classes stand in the kernels' arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import LOG_FLOOR
from relook.selection.kernels.float32 import LANES

_SAMPLED = 48  # candidates whose mean decides the order
_LEFT_OUT = 0.012  # the share of the mass on classes that are not held one by one


@dataclass(frozen=True)
class Layout:
    """Images stand in blocks of similar ones, classes from the likeliest to the least likely.

    `images` `[n]` is the order of the images: those that count, the least certain first.
    `places` `[block, class, lane]` says where in its block's rows `[lane, class]` a value stands:
    the label's class, then the others by a sample's mean, falling. `held` `[block]` is how
    many of these others a look takes one by one; `used` how many blocks have any weight.
    """

    images: NDArray[np.int64]
    places: NDArray[np.int32]
    weights: NDArray[np.float32]  # [block, lane]
    held: NDArray[np.int64]
    used: int


def make_layout(log_probs: LogProbs, labels: Labels, weights: FloatArray | None) -> Layout:
    """Decide the order of images and classes from a sample of the candidates."""
    count = log_probs.shape[1]
    blocks = -(-count // LANES)
    order, shares = _class_order(log_probs, labels)
    parts = np.full(count, 1 / count) if weights is None else weights / weights.sum()
    needed = (shares.cumsum(axis=1) < 1 - _LEFT_OUT).sum(axis=1)
    images = np.lexsort((-needed, parts == 0))
    lanes = np.zeros(blocks * LANES)
    lanes[:count] = parts[images]
    lanes = lanes.reshape(blocks, LANES)
    return Layout(
        images,
        _places(order[images], blocks),
        lanes.astype(np.float32),
        _held(shares[images], blocks),
        int(lanes.any(axis=1).sum()),
    )


def _class_order(
    log_probs: LogProbs, labels: Labels
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the classes of each image `[n, c]`, the label's first, and their mean shares."""
    candidates, images, classes = log_probs.shape
    mean = np.zeros((images, classes), np.float32)
    sample = np.unique(np.linspace(0, candidates - 1, min(candidates, _SAMPLED)).astype(int))
    for candidate in sample:
        mean += np.exp(np.maximum(log_probs[candidate], LOG_FLOOR), dtype=np.float32)
    mean /= len(sample)
    keys = -mean
    keys[np.arange(images), labels] = -np.inf
    order = np.argsort(keys, axis=1).astype(np.int32)
    return order, np.take_along_axis(mean, order, axis=1)


def _held(shares: NDArray[np.float32], blocks: int) -> NDArray[np.int64]:
    """Return how many classes beside the label's each block holds: those with most mass."""
    starts = np.arange(blocks) * LANES
    sums = np.add.reduceat(shares[:, 1:], starts, axis=0, dtype=np.float64)
    rising = np.sort(sums, axis=None)
    left_out = int((rising.cumsum() < _LEFT_OUT * len(shares)).sum())
    least = rising[min(left_out, rising.size - 1)]
    return np.asarray(np.maximum((sums >= least).sum(axis=1), 1), dtype=np.int64)


def _places(order: NDArray[np.int32], blocks: int) -> NDArray[np.int32]:
    images, classes = order.shape
    padded = np.zeros((blocks * LANES, classes), np.int32)
    padded[:images] = order
    starts = np.arange(LANES, dtype=np.int32)[:, None] * classes
    rows = padded.reshape(blocks, LANES, classes) + starts
    return np.ascontiguousarray(rows.transpose(0, 2, 1))
