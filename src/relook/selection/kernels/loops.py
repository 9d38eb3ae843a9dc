"""The compiled loops over a pool: exact values of candidates, and bounds from likely classes.

Images lie side by side in lanes, so that ten classes fill the vector unit as well as a thousand
do. A pool is `[candidate, block, class, lane]`, with each image's classes in an order of its own,
the label's first; every sum has one fixed order, whatever the number of threads.

Bounds come from a form that takes half the memory or less: for each image the label's probability
in float32, and its likeliest other classes rounded down to 8 bits. Rounding down and leaving
classes out makes the sum under the logarithm smaller and so the score larger, as an upper bound
allows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relook.selection.kernels.arithmetic import (
    LANES,
    LN2,
    LOWEST,
    SCALE,
    compiled,
    exp2,
    exp2_double,
    larger,
    log2,
    log2_double,
    scaled_exp,
    scaled_log2,
    tree_sum,
    wide_vectors,
    widened,
)

_f = np.float32
_HIGHEST = _f(60)
_FOLDED = 16  # partial sums over lanes
_LEAST = np.exp(-80.0)
_LOG2E = 1 / LN2
_SIDE_BY_SIDE = 16  # classes that float64 sums at once: they vectorise, in a fixed order
_NOTHING = -1e6  # a gap at which exp2 is at its floor, which no sum notices


@compiled
def shortened(value: Any) -> Any:
    """Return the upper half of a positive float32's bits: the number, rounded down to 8 bits."""
    return np.uint16(np.uint32(_f(value).view(np.uint32) >> np.uint32(16)))


@compiled
def lengthened(value: Any) -> Any:
    """Return the float32 whose bits begin with these."""
    return np.uint32(np.uint32(value) << np.uint32(16)).view(np.float32)


@compiled
def evaluate(
    pool: Any,
    begin: int,
    base: Any,
    share: np.float32,
    weights: Any,
    classes: int,
    tails: Any,
    rest: Any,
    which: Any,
    betas: Any,
    tail_of: Any,
    out: Any,
) -> None:
    """Add up score, slope and bend over blocks of images: `out` `[k, 3]`, float64.

    `pool` `[candidate, block, class, lane]` are probabilities p × 2^24, used from block `begin` on;
    `base` `[block, class, lane]` is (t − 1)π/t × 2^24, so that q = base + share·p; `weights` are
    `[block, lane]`. Candidate `which[j]` is evaluated at β = `betas[j]`: Σ w·(β·log q_y −
    log Σ q^β), its derivative, and minus its second derivative, in nats. The sum goes over the
    first `classes` classes; `tails[tail_of[j]]` `[3, block, lane]` stands for the others: their
    q^β, q^β·log₂ q and q^β·(log₂ q)². If `rest` `[block, lane]` is not empty, the pool's
    class number `classes` is the candidate's mass R on all others, `rest` is theirs in `base`,
    and the tail describes how mass is spread over them; see `describe_rest`.
    """
    wide_vectors()
    has_rest = rest.shape[0] > 0
    gaps = np.empty((classes, LANES), np.float32)
    top = np.empty(LANES, np.float32)
    total = np.empty(LANES, np.float32)
    first = np.empty(LANES, np.float32)
    second = np.empty(LANES, np.float32)
    out[:] = 0.0
    for block in range(base.shape[0]):
        for j in range(len(which)):
            part, beta = pool[which[j], begin + block], np.float32(betas[j])
            tail = tails[tail_of[j]]
            for lane in range(LANES):
                top[lane] = _f(-200)
            for c in range(classes):
                for lane in range(LANES):
                    q = base[block, c, lane] + share * part[c, lane]
                    gaps[c, lane] = scaled_log2(larger(q, LOWEST))
                for lane in range(LANES):
                    top[lane] = larger(gaps[c, lane], top[lane])
            for lane in range(LANES):
                high = top[lane]
                # Bounded, so that the floor of exp2 does not show in the tail; less tail is safe.
                scale = exp2(-larger(beta * high, -_HIGHEST))
                none, one, two = tail[0, block, lane], tail[1, block, lane], tail[2, block, lane]
                if has_rest:
                    q = rest[block, lane] + share * part[classes, lane]
                    log_q = scaled_log2(larger(q, LOWEST))
                    spread, inner = two, one
                    none *= exp2(beta * log_q)
                    one = none * (log_q + inner)
                    two = none * (spread + (log_q + inner) * (log_q + inner))
                total[lane] = scale * none
                first[lane] = scale * (one - high * none)
                second[lane] = scale * (two - high * (one + one - high * none))
            for c in range(classes):
                for lane in range(LANES):
                    gap = gaps[c, lane] - top[lane]
                    term = exp2(beta * gap)
                    total[lane] += term
                    first[lane] += term * gap
                    second[lane] += term * gap * gap
            for lane in range(LANES):
                weight = weights[block, lane]
                mean = first[lane] / total[lane]
                label_gap = gaps[0, lane] - top[lane]
                bend = second[lane] / total[lane] - mean * mean
                total[lane] = weight * (beta * label_gap - log2(total[lane]))
                first[lane] = weight * (label_gap - mean)
                second[lane] = weight * larger(bend, _f(0))
            out[j, 0] += LN2 * tree_sum(total)
            out[j, 1] += LN2 * tree_sum(first)
            out[j, 2] += LN2 * LN2 * tree_sum(second)


@compiled
def lay_out_mean(mean: Any, images: Any, places: Any, factor: float, base: Any) -> None:
    """Write factor·mean `[n, c]` as `base` `[block, class, lane]`; see `Layout` for the order."""
    count, classes = mean.shape
    rows = mean.reshape(count * classes)
    base[:] = _f(0)
    for block in range(base.shape[0]):
        begin = block * LANES
        for c in range(classes):
            for lane in range(min(LANES, count - begin)):
                place = (images[begin + lane] - lane) * classes + places[block, c, lane]
                base[block, c, lane] = np.float32(SCALE * factor * rows[place])


@compiled
def lay_out(values: Any, images: Any, places: Any, pool: Any) -> None:
    """Write probabilities × 2^24 of a candidate `[n, c]` into `pool` `[block, class, lane]`."""
    wide_vectors()
    count, classes = values.shape
    rows = np.zeros((LANES, classes), np.float32)
    flat = rows.reshape(LANES * classes)
    for block in range(pool.shape[0]):
        lanes = min(LANES, count - block * LANES)
        for lane in range(lanes):
            row = values[images[block * LANES + lane]]
            for c in range(classes):
                rows[lane, c] = _f(widened(row[c]))
        for at in range(lanes * classes):
            flat[at] = scaled_exp(flat[at])
        for c in range(classes):
            for lane in range(LANES):
                pool[block, c, lane] = flat[places[block, c, lane]]


@compiled
def keep_likeliest(
    values: Any,
    images: Any,
    order: Any,
    starts: Any,
    candidate: int,
    tolerance: np.float32,
    own: Any,
    others: Any,
) -> int:
    """Write a candidate's probabilities × 2^24: the label's to `own`, the likeliest to `others`.

    `values` `[n, c]` are log-probabilities; for the rest see `bound`. Returns how many rows and
    values may not belong to normalised log-probabilities (within `tolerance`; NaN never does).
    """
    wide_vectors()
    count, classes = values.shape
    rows = np.zeros((LANES, classes), np.float32)
    flat = rows.reshape(LANES * classes)
    total, odd = np.empty(LANES, np.float32), np.zeros(LANES, np.float32)
    wrong = 0
    for block in range(own.shape[0]):
        lanes = min(LANES, count - block * LANES)
        for lane in range(lanes):
            row = values[images[block * LANES + lane]]
            for c in range(classes):
                rows[lane, c] = _f(widened(row[c]))
        for c in range(classes):  # as many values as the block has, in any order
            for lane in range(lanes):
                odd[lane] += _f(0) if flat[c * lanes + lane] <= tolerance else _f(1)
        for at in range(lanes * classes):
            flat[at] = scaled_exp(flat[at])
        total[:] = _f(0)
        for c in range(classes):
            for lane in range(LANES):
                total[lane] += flat[lane * classes + c]
        for lane in range(lanes):
            wrong += not abs(np.log(total[lane] / _f(SCALE))) <= tolerance
        goal = _part(others, starts, block, own)[candidate]
        for lane in range(LANES):
            own[block, candidate, lane] = flat[order[block, 0, lane]]
        for c in range(goal.shape[0]):
            for lane in range(LANES):
                goal[c, lane] = shortened(flat[order[block, c + 1, lane]])
    return wrong + int(odd.sum())


@compiled
def _part(others: Any, starts: Any, block: int, own: Any) -> Any:
    part = others[starts[block] : starts[block + 1]]
    return part.reshape(own.shape[1], len(part) // (own.shape[1] * LANES), LANES)


@compiled
def _sum_folded(values: Any) -> float:
    for lane in range(8):
        values[lane] += values[lane + 8]
    for lane in range(4):
        values[lane] += values[lane + 4]
    return float(values[0] + values[2]) + float(values[1] + values[3])


@compiled
def _sum_tails(base: Any, begin: int, depth: np.float32, betas: Any, logs: Any, tails: Any) -> None:
    """Fill `tails` `[β, 3, lane]` from class `begin` on: Σ b^β·(log₂ b)^m for m = 0, 1, 2."""
    for c in range(begin, base.shape[0]):
        for lane in range(LANES):
            logs[c, lane] = scaled_log2(larger(base[c, lane], LOWEST)) + depth
    tails[:] = _f(0)
    for b in range(len(betas)):
        for c in range(begin, base.shape[0]):
            for lane in range(LANES):
                term = exp2(betas[b] * logs[c, lane])
                tails[b, 0, lane] += term
                tails[b, 1, lane] += term * logs[c, lane]
                tails[b, 2, lane] += term * logs[c, lane] * logs[c, lane]


@compiled
def bound(
    own: Any,
    others: Any,
    starts: Any,
    begin: int,
    base: Any,
    share: np.float32,
    weights: Any,
    depth: np.float32,
    betas: Any,
    which: Any,
    beta_of: Any,
    out: Any,
) -> None:
    """Add up bounds of the scores over blocks from `begin` on: `out` `[k, 3]`, in units of log₂.

    `own` `[block, candidate, lane]` are the labels' probabilities × 2^24; a block of `others`,
    from `starts[block]` on, is `[candidate, row, lane]`: the likeliest other classes. `base`
    `[block, class, lane]` is (t − 1)π/t × 2^24, and q = base + share·p; a class that is not held
    counts with its base alone. Candidate `which[j]` is evaluated at β = `betas[beta_of[j]]`.
    `depth`, log₂(classes), is added to all logarithms, so that those of uniform predictions are
    about 0.
    """
    wide_vectors()
    label, logs = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    total, first = np.empty(LANES, np.float32), np.empty(LANES, np.float32)
    second, tails = np.empty(LANES, np.float32), np.empty((len(betas), 3, LANES), np.float32)
    logs_b = np.empty((base.shape[1], LANES), np.float32)
    folded = np.zeros((len(which), 3, _FOLDED), np.float32)
    for block in range(base.shape[0]):
        rows = _part(others, starts, begin + block, own)
        held = rows.shape[1]
        _sum_tails(base[block], held + 1, depth, betas, logs_b, tails)
        for j in range(len(which)):
            candidate, b = which[j], beta_of[j]
            beta = betas[b]
            # Separate loops for logarithms and powers: AVX2 has too few registers for the
            # constants of both.
            for lane in range(LANES):
                q = base[block, 0, lane] + share * own[begin + block, candidate, lane]
                label[lane] = scaled_log2(larger(q, LOWEST)) + depth
            for lane in range(LANES):
                log_q = label[lane]
                term = exp2(beta * log_q)
                total[lane] = tails[b, 0, lane] + term
                first[lane] = tails[b, 1, lane] + term * log_q
                second[lane] = tails[b, 2, lane] + term * log_q * log_q
            for c in range(held):
                for lane in range(LANES):
                    p = lengthened(rows[candidate, c, lane])
                    q = base[block, c + 1, lane] + share * p
                    logs[lane] = scaled_log2(larger(q, LOWEST)) + depth
                for lane in range(LANES):
                    log_q = logs[lane]
                    term = exp2(beta * log_q)
                    total[lane] += term
                    first[lane] += term * log_q
                    second[lane] += term * log_q * log_q
            for lane in range(LANES):
                weight, part = weights[block, lane], _f(1) / total[lane]
                mean = first[lane] * part
                total[lane] = weight * (beta * label[lane] - log2(total[lane]))
                first[lane] = weight * (label[lane] - mean)
                second[lane] = weight * larger(second[lane] * part - mean * mean, _f(0))
            for lane in range(_FOLDED):
                folded[j, 0, lane] += (total[lane] + total[lane + 16]) + (
                    total[lane + 32] + total[lane + 48]
                )
                folded[j, 1, lane] += (first[lane] + first[lane + 16]) + (
                    first[lane + 32] + first[lane + 48]
                )
                folded[j, 2, lane] += (second[lane] + second[lane + 16]) + (
                    second[lane + 32] + second[lane + 48]
                )
    for j in range(len(which)):
        for m in range(3):
            out[j, m] = _sum_folded(folded[j, m])


@compiled
def _extent(values: Any, high: Any, low: Any) -> Any:
    """Return the largest value and minus the smallest; their number is a multiple of the lanes."""
    for lane in range(_SIDE_BY_SIDE):
        high[lane], low[lane] = values[lane], -values[lane]
    for begin in range(_SIDE_BY_SIDE, len(values), _SIDE_BY_SIDE):
        for lane in range(_SIDE_BY_SIDE):
            high[lane] = larger(values[begin + lane], high[lane])
            low[lane] = larger(-values[begin + lane], low[lane])
    return high.max(), low.max()


@compiled
def exact_values(
    log_probs: Any, mean: Any, step: int, labels: Any, weights: Any, beta: float, out: Any
) -> None:
    """Write score, slope, minus the second derivative, and the lowest gap: `out` `[4]`.

    All are of one candidate, at β, with predictions `log_probs` `[n, c]`. `mean` `[n, c]` is the
    policy's average before entry number `step`; `weights` `[n]` sum to 1 over all images. A gap is
    a log-probability minus the image's largest.
    """
    wide_vectors()
    images, classes = log_probs.shape
    padded = (classes + _SIDE_BY_SIDE - 1) // _SIDE_BY_SIDE * _SIDE_BY_SIDE
    gaps = np.empty(padded)
    total, first, second = np.empty(_SIDE_BY_SIDE), np.empty(_SIDE_BY_SIDE), np.empty(_SIDE_BY_SIDE)
    share, before = 1 / step, step - 1.0
    out[:] = 0.0
    for row in range(images):
        for c in range(classes):
            gaps[c] = exp2_double(_LOG2E * widened(log_probs[row, c]))
        for c in range(classes):
            gaps[c] = log2_double(larger((gaps[c] + before * mean[row, c]) * share, _LEAST))
        gaps[classes:] = gaps[0]
        top, depth = _extent(gaps, total, first)
        gaps[classes:] = _NOTHING
        out[3] = min(out[3], LN2 * (-depth - top))
        total[:], first[:], second[:] = 0.0, 0.0, 0.0
        for begin in range(0, padded, _SIDE_BY_SIDE):
            for lane in range(_SIDE_BY_SIDE):
                gap = gaps[begin + lane] - top
                term = exp2_double(beta * gap)
                total[lane] += term
                first[lane] += term * gap
                second[lane] += term * gap * gap
        own, mass = gaps[labels[row]] - top, total.sum()
        average = first.sum() / mass
        weight = weights[row]
        out[0] += weight * LN2 * (beta * own - np.log2(mass))
        out[1] += weight * LN2 * (own - average)
        out[2] += weight * LN2 * LN2 * max(second.sum() / mass - average * average, 0.0)
