"""The compact form of predictions with many classes, made in one pass over them."""

from __future__ import annotations

import math
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.selection.checks import SUSPECT, check_rows, normalised_within
from relook.selection.kernels import row_kernels
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, Values
from relook.selection.kernels.float32 import LANES
from relook.selection.kernels.rows import Rows

_PART = 16 * LANES  # images read at once
_SAMPLED = 24  # candidates whose mean decides which classes are kept
_GUESSES = 3  # of a candidate's β, from its first images
_ABOVE = 1.03  # times the guess: the bound is tighter downwards
_STEEPEST = 60.0  # ÷ log₂(classes): the largest β that the row kernels take
_WAITING = 2  # threads for each core while predictions are read: some wait for the disk


@dataclass(frozen=True)
class Compact:
    """Kept classes of all predictions, and what was learnt on the way.

    `pool` `[candidate, block, kept + 1, lane]` holds probabilities × 2^24, the last the mass of
    all classes that are not kept; `order` `[n, kept]` says which are; `pool_mean` `[n, c]` is the
    average of some candidates. `alone` `[k]` are the candidates' own values at `betas` `[k]`.
    """

    pool: NDArray[np.float32]
    order: NDArray[np.int32]
    pool_mean: NDArray[np.float32]
    weights: NDArray[np.float32]  # [block, lane]
    betas: FloatArray
    alone: Values

    def images(self, block: int) -> slice:
        """Return which images stand in a block."""
        return slice(block * LANES, min((block + 1) * LANES, len(self.order)))


def read_predictions(
    log_probs: LogProbs,
    rows: Rows,
    labels: Labels,
    weights: FloatArray | None,
    kept: int,
    cores: int,
) -> Compact:
    """Go over all predictions once: fill the compact form, evaluate each candidate alone."""
    candidates, images, _ = log_probs.shape
    blocks = -(-images // LANES)
    pool = np.empty((candidates, blocks, kept + 1, LANES), np.float32)
    pool[:, -1] = 0
    shares = np.full(images, 1 / images) if weights is None else weights / weights.sum()
    lanes = np.zeros((blocks, LANES), np.float32)
    lanes.reshape(-1)[:images] = shares
    betas, sums = np.empty(candidates), np.zeros((candidates, 3))
    odd = np.zeros(candidates)
    parts = [slice(at, min(at + _PART, images)) for at in range(0, images, _PART)]
    tolerance = np.float32(SUSPECT * normalised_within(log_probs))
    with ThreadPoolExecutor(_WAITING * cores) as threads:
        pool_mean, order = _likeliest(rows, log_probs.shape, labels, parts, kept, threads)

        def work(candidate: int) -> None:
            for part in parts:
                values = rows.part(candidate, part)
                if part.start == 0:
                    betas[candidate] = _guess(values, labels[part])
                odd[candidate] += row_kernels.keep_first(
                    values, order[part], tolerance, part.start, pool[candidate]
                )
                row_kernels.values_alone(
                    values,
                    labels[part],
                    shares[part],
                    np.float32(betas[candidate]),
                    sums[candidate],
                )

        list(threads.map(work, range(candidates)))
    check_rows(log_probs, np.flatnonzero(odd))
    return Compact(pool, order, pool_mean, lanes, betas, Values(*sums.T))


def _likeliest(
    rows: Rows,
    shape: tuple[int, ...],
    labels: Labels,
    parts: list[slice],
    kept: int,
    threads: Executor,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the mean of some candidates `[n, c]`, and the classes to keep `[n, kept]`."""
    candidates, images, classes = shape
    sample = np.unique(np.linspace(0, candidates - 1, min(candidates, _SAMPLED)).astype(int))
    mean = np.zeros((images, classes), np.float32)
    order = np.empty((images, kept), np.int32)

    def work(part: slice) -> None:
        for candidate in sample:
            row_kernels.add_probabilities(rows.part(candidate, part), mean[part])
        mean[part] *= np.float32(2.0**-24 / len(sample))
        keys = -mean[part]
        keys[np.arange(len(keys)), labels[part]] = -np.inf
        order[part] = np.argpartition(keys, kept - 1, axis=1)[:, :kept]
        # The label's class comes first.
        own = np.argmax(order[part] == labels[part, None], axis=1)
        order[np.arange(part.start, part.stop), own] = order[part, 0]
        order[part, 0] = labels[part]

    list(threads.map(work, parts))
    return mean, order


def _guess(values: NDArray[Any], labels: Labels) -> float:
    """Return about the best β of a candidate, from its first images."""
    weights = np.full(len(labels), 1 / len(labels))
    highest = min(HIGHEST_BETA, _STEEPEST / math.log2(values.shape[1]))
    beta = 1.0
    for _ in range(_GUESSES):
        sums = np.zeros(3)
        row_kernels.values_alone(values, labels, weights, np.float32(beta), sums)
        move = sums[1] / sums[2] if sums[2] > 0 else 0.0
        beta = min(max(beta + move, 0.7 * beta, LOWEST_BETA), 1.3 * beta, highest)
    return float(np.float32(min(_ABOVE * beta, highest)))
