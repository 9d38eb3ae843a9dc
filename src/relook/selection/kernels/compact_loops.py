"""Compiled loops over rows of predictions `[image, class]` as they are stored, float16 as its bits.

A row's values are summed side by side in lanes, so that the order is fixed and vectorises.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relook.selection.kernels.arithmetic import (
    LANES,
    LN2,
    SCALE,
    compiled,
    exp2,
    larger,
    log2,
    scaled_exp,
    tree_sum,
    wide_vectors,
    widened,
)

_f = np.float32
_SCALE = _f(SCALE)
_LOG2E = _f(1 / LN2)
_FLOOR = _f(-80)
_NOTHING = _f(-1e6)  # a logarithm at which exp2 is at its floor for every β


@compiled
def _padded(classes: int) -> int:
    """Return the next multiple of the lanes: loops of a fixed length vectorise best."""
    return (classes + LANES - 1) // LANES * LANES


@compiled
def _sum_of(values: Any, lanes: Any) -> float:
    lanes[:] = _f(0)
    for begin in range(0, len(values), LANES):
        for lane in range(LANES):
            lanes[lane] += values[begin + lane]
    return tree_sum(lanes)  # type: ignore[no-any-return]


@compiled
def add_probabilities(values: Any, out: Any) -> None:
    """Add a candidate's probabilities × 2^24 to `out` `[n, c]`."""
    wide_vectors()
    images, classes = values.shape
    for row in range(images):
        for c in range(classes):
            out[row, c] += scaled_exp(_f(widened(values[row, c])))


@compiled
def values_alone(values: Any, labels: Any, weights: Any, beta: np.float32, out: Any) -> None:
    """Add up a candidate's score at β, its slope and minus its second derivative: `out` `[3]`.

    The score is Σ w·(β·log p_y − log Σ p^β), in nats. β × log₂(classes) must be at most 60: then
    an image's largest term is so large that the floor of `exp2` is negligible.
    """
    wide_vectors()
    images, classes = values.shape
    logs = np.full(_padded(classes), _NOTHING, np.float32)
    total = np.empty(LANES, np.float32)
    first = np.empty(LANES, np.float32)
    second = np.empty(LANES, np.float32)
    for row in range(images):
        for c in range(classes):
            logs[c] = _LOG2E * larger(_f(widened(values[row, c])), _FLOOR)
        total[:], first[:], second[:] = _f(0), _f(0), _f(0)
        for begin in range(0, len(logs), LANES):
            for lane in range(LANES):
                log_p = logs[begin + lane]
                term = exp2(beta * log_p)
                total[lane] += term
                first[lane] += term * log_p
                second[lane] += term * log_p * log_p
        own = logs[labels[row]]
        mass = tree_sum(total)
        mean = tree_sum(first) / mass
        out[0] += weights[row] * LN2 * (beta * own - np.log2(mass))
        out[1] += weights[row] * LN2 * (own - mean)
        out[2] += weights[row] * LN2 * LN2 * max(tree_sum(second) / mass - mean * mean, 0.0)


@compiled
def keep_first(values: Any, order: Any, tolerance: np.float32, first: int, pool: Any) -> float:
    """Write a candidate's kept classes into `pool` `[block, kept + 1, lane]`.

    `order` `[n, kept]` lists the classes of each image; the last entry is the mass of all others.
    `first`, the number of the first row's image, begins a block. Returns how many rows and values
    may not belong to normalised log-probabilities (within `tolerance`).
    """
    wide_vectors()
    images, classes = values.shape
    kept = order.shape[1]
    logs = np.full(_padded(classes), _NOTHING, np.float32)
    probabilities = np.empty(len(logs), np.float32)
    lanes, odd = np.empty(LANES, np.float32), np.zeros(LANES, np.float32)
    wrong = 0.0
    for row in range(images):
        for c in range(classes):
            logs[c] = _f(widened(values[row, c]))
        for begin in range(0, len(logs), LANES):
            for lane in range(LANES):
                odd[lane] += _f(0) if logs[begin + lane] <= tolerance else _f(1)
        for c in range(len(logs)):
            probabilities[c] = scaled_exp(logs[c])
        total = _sum_of(probabilities, lanes)
        wrong += not abs(np.log(total / _SCALE)) <= tolerance
        goal = pool[(first + row) // LANES]
        at = (first + row) % LANES
        for c in range(kept):
            value = probabilities[order[row, c]]
            goal[c, at] = value
            total -= value
        goal[kept, at] = max(total, 0.0)
    return float(wrong + tree_sum(odd))


@compiled
def describe_rest(
    mean: Any,
    pool_mean: Any,
    order: Any,
    factor: float,
    share: np.float32,
    betas: Any,
    base: Any,
    rest: Any,
    tails: Any,
) -> None:
    """Lay out a block's average, and describe how the mass on classes not kept is spread.

    `mean` and `pool_mean` `[n, c]` are the policy's average and the pool's, `order` `[n, kept]`
    the classes kept. Writes factor·mean of those, × 2^24, to `base` `[kept, lane]`, and the mass of
    the others to `rest` `[lane]`. `tails` `[β, 3, lane]` describe factor·mean + share·pool_mean
    over the others, with shares σ: Σ σ^β, and mean and variance of log₂ σ under σ^β. Mass R spread
    like this adds R^β·Σ σ^β to the sum of q^β.
    """
    wide_vectors()
    images, classes = mean.shape
    expected = np.zeros(_padded(classes), np.float32)
    sums = np.empty((3, LANES), np.float32)
    for row in range(images):
        expected[classes:] = _f(0)
        for c in range(classes):
            expected[c] = _f(factor * mean[row, c])
        for c in range(order.shape[1]):
            base[c, row] = _SCALE * expected[order[row, c]]
            expected[order[row, c]] = _f(0)
        rest[row] = _SCALE * _f(_sum_of(expected, sums[0]))
        for c in range(classes):
            expected[c] += share * pool_mean[row, c]
        for c in range(order.shape[1]):
            expected[order[row, c]] = _f(0)
        _describe(expected, betas, sums, tails[:, :, row])


@compiled
def _describe(expected: Any, betas: Any, sums: Any, tails: Any) -> None:
    """Describe the shares of one image's classes; a share of 0 adds next to nothing."""
    wide_vectors()
    log_total = log2(larger(_f(_sum_of(expected, sums[0])), _f(1e-30)))
    for c in range(len(expected)):
        value = expected[c]
        expected[c] = log2(larger(value, _f(1e-35))) - log_total if value > _f(0) else _NOTHING
    for b in range(len(betas)):
        beta = _f(betas[b])
        sums[:] = _f(0)
        for begin in range(0, len(expected), LANES):
            for lane in range(LANES):
                log_share = expected[begin + lane]
                term = exp2(beta * log_share)
                sums[0, lane] += term
                sums[1, lane] += term * log_share
                sums[2, lane] += term * log_share * log_share
        none = max(tree_sum(sums[0]), 1e-30)
        average = tree_sum(sums[1]) / none
        tails[b, 0] = _f(none)
        tails[b, 1] = _f(average)
        tails[b, 2] = _f(max(tree_sum(sums[2]) / none - average * average, 0.0))
