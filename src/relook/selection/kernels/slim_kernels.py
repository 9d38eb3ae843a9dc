"""Compiled looks at a pool's likeliest classes, held in half the memory: bounds, not scores.

Of each image the label's probability is held in float32, its likeliest other classes and the mass
on all the rest rounded down to 8 bits. Rounding down makes the sum under the logarithm smaller
and the score larger, which an upper bound may be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from relook.selection.kernels.float32 import (
    LANES,
    built,
    compiled,
    exp2,
    larger,
    log2,
    scaled_exp,
    scaled_log2,
    wide_vectors,
    widened,
)

_f = np.float32
_SCALE = 2.0**24
_LOWEST = _f(_SCALE * np.exp(-80.0))
_HIGHEST = _f(_SCALE)
_FOLDED = 16  # parts in which sums over lanes are kept
_ROUNDING = _f(1e-5)  # of a row's sum: more than float32 may be off by


@built
def shortened(typing: Any, value: Any) -> Any:
    """Return the upper half of a positive float32's bits: the number, rounded down to 8 bits."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        bits = builder.lshr(builder.bitcast(args[0], i32), ir.Constant(i32, 16))
        return builder.trunc(bits, ir.IntType(16))

    return types.uint16(types.float32), build


@built
def lengthened(typing: Any, value: Any) -> Any:
    """Return the float32 whose bits begin with these."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        bits = builder.shl(builder.zext(args[0], i32), ir.Constant(i32, 16))
        return builder.bitcast(bits, ir.FloatType())

    return types.float32(types.uint16), build


@built
def _add_lines(typing: Any, rows: Any, lines: Any, begin: Any, end: Any, sums: Any) -> Any:
    """Add Σ rows[r]·lines[r, m] over rows `begin` … `end` to `sums` `[3, LANES]`, for each m.

    Written out in vectors, as the compiler would keep the sums in memory.
    """

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, i64 = ir.IntType(32), ir.IntType(64)
        lanes = ir.VectorType(ir.FloatType(), LANES)
        whole = ir.VectorType(i32, LANES)
        short = ir.VectorType(ir.IntType(16), LANES)
        shift = ir.Constant(whole, [ir.Constant(i32, 16)] * LANES)

        def pointer(at: int, kind: Any) -> Any:
            array = context.make_array(signature.args[at])(context, builder, value=args[at])
            return builder.bitcast(array.data, kind.as_pointer())

        row, line, goal = pointer(0, short), pointer(1, lanes), pointer(4, lanes)
        goals = [builder.gep(goal, [ir.Constant(i64, m)]) for m in range(3)]
        start, before = [builder.load(place, align=4) for place in goals], builder.block
        test, body, after = (builder.append_basic_block(name) for name in ("test", "body", "after"))
        builder.branch(test)
        builder.position_at_end(test)
        at = builder.phi(i64)
        at.add_incoming(args[2], before)
        sums = [builder.phi(lanes) for _ in range(3)]
        for each, value in zip(sums, start, strict=True):
            each.add_incoming(value, before)
        builder.cbranch(builder.icmp_signed("<", at, args[3]), body, after)
        builder.position_at_end(body)
        bits = builder.zext(builder.load(builder.gep(row, [at]), align=2), whole)
        value = builder.bitcast(builder.shl(bits, shift), lanes)
        triple = builder.mul(at, ir.Constant(i64, 3))
        for m, each in enumerate(sums):
            place = builder.gep(line, [builder.add(triple, ir.Constant(i64, m))])
            product = builder.fmul(value, builder.load(place, align=4), flags=("contract",))
            each.add_incoming(builder.fadd(each, product, flags=("contract",)), body)
        at.add_incoming(builder.add(at, ir.Constant(i64, 1)), body)
        builder.branch(test)
        builder.position_at_end(after)
        for place, each in zip(goals, sums, strict=True):
            builder.store(each, place, align=4)
        return context.get_dummy_value()

    return types.none(rows, lines, types.int64, types.int64, sums), build


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

    `values` `[n, c]` are log-probabilities; for the rest see `look`. Returns how many rows and
    values may not be those of normalised log-probabilities (within `tolerance`; NaN).
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
            wrong += not abs(np.log(total[lane] / _f(_SCALE))) <= tolerance
        _write_block(
            flat,
            order[block],
            total,
            own[block, candidate],
            _part(others, starts, block, own)[candidate],
        )
    return wrong + int(odd.sum())


@compiled
def _part(others: Any, starts: Any, block: int, own: Any) -> Any:
    """Return a block's rows `[candidate, row, lane]`."""
    part = others[starts[block] : starts[block + 1]]
    return part.reshape(own.shape[1], len(part) // (own.shape[1] * LANES), LANES)


@compiled
def _write_block(flat: Any, order: Any, left: Any, own: Any, others: Any) -> None:
    for lane in range(LANES):
        own[lane] = flat[order[0, lane]]
        left[lane] = left[lane] * (_f(1) - _ROUNDING) - own[lane]
    last = others.shape[0] - 1
    for c in range(last):
        for lane in range(LANES):
            value = flat[order[c + 1, lane]]
            left[lane] -= value
            others[c, lane] = shortened(value)
    for lane in range(LANES):
        others[last, lane] = shortened(larger(left[lane], _f(0)))


@compiled
def _logs_of(base: Any, held: int, depth: np.float32, logs: Any, parts: Any) -> None:
    """Fill log₂ of a block's base, and 1/base, `[class, lane]`; the last: the least not held."""
    classes = base.shape[0]
    least = np.full(LANES, _HIGHEST, np.float32)
    for c in range(classes):
        for lane in range(LANES):
            value = larger(base[c, lane], _LOWEST)
            logs[c, lane] = scaled_log2(value) + depth
            parts[c, lane] = _f(1) / value
    for c in range(held + 1, classes):
        for lane in range(LANES):
            least[lane] = -larger(-larger(base[c, lane], _LOWEST), -least[lane])
    for lane in range(LANES):
        logs[classes, lane] = scaled_log2(least[lane]) + depth
        parts[classes, lane] = _f(1) / least[lane]


@compiled
def _sum_tail(logs: Any, begin: int, beta: np.float32, tail: Any) -> None:
    """Fill `tail` `[3, lane]`: Σ b^β, b^β·log₂ b and b^β·(log₂ b)² over classes from `begin` on."""
    tail[:] = _f(0)
    for c in range(begin, logs.shape[0] - 1):
        for lane in range(LANES):
            log_b = logs[c, lane]
            term = exp2(beta * log_b)
            tail[0, lane] += term
            tail[1, lane] += term * log_b
            tail[2, lane] += term * log_b * log_b


@compiled
def _draw_lines(
    logs: Any, parts: Any, beta: np.float32, shift: np.float32, factor: np.float32, lines: Any
) -> None:
    """Fill `lines` `[row, 3, lane]`: what p is multiplied with to be added to the three sums."""
    last = lines.shape[0] - 1
    for row in range(last + 1):
        c = row + 1 if row < last else logs.shape[0] - 1
        for lane in range(LANES):
            log_b = logs[c, lane]
            weight = factor * exp2(beta * log_b) * parts[c, lane]
            lines[row, 0, lane] = weight
            lines[row, 1, lane] = weight * (log_b + shift)
            lines[row, 2, lane] = weight * (log_b + shift) * (log_b + shift)


@compiled
def _add_up(weights: Any, beta: np.float32, logs: Any, sums: Any, work: Any, out: Any) -> None:
    """Add score, slope and bend of a block's images to `out` `[3, _FOLDED]`, in units of log₂."""
    for lane in range(LANES):
        part = _f(1) / sums[0, lane]
        mean = sums[1, lane] * part
        work[0, lane] = weights[lane] * (beta * logs[lane] - log2(sums[0, lane]))
        work[1, lane] = weights[lane] * (logs[lane] - mean)
        work[2, lane] = weights[lane] * larger(sums[2, lane] * part - mean * mean, _f(0))
    for m in range(3):
        for lane in range(_FOLDED):
            out[m, lane] += (work[m, lane] + work[m, lane + 16]) + (
                work[m, lane + 32] + work[m, lane + 48]
            )


@compiled
def _sum_folded(values: Any) -> float:
    for lane in range(8):
        values[lane] += values[lane + 8]
    for lane in range(4):
        values[lane] += values[lane + 4]
    return float(values[0] + values[2]) + float(values[1] + values[3])


@compiled
def look(
    own: Any,
    others: Any,
    starts: Any,
    begin: int,
    base: Any,
    share: np.float32,
    weights: Any,
    exact: int,
    depth: np.float32,
    betas: Any,
    shifts: Any,
    factors: Any,
    which: Any,
    beta_of: Any,
    out: Any,
) -> None:
    """Add up what bounds the scores over blocks from `begin` on: `out` `[k, 6]`, in units of log₂.

    `own` `[block, candidate, lane]` are the labels' probabilities × 2^24; a block of `others`,
    from `starts[block]` on, is `[candidate, row, lane]`: the likeliest other classes and, in the
    last row, the mass on all the rest. `base` `[block, class, lane]` is (t − 1)π/t × 2^24, and
    q = base + share·p. Candidate `which[j]` is looked at with β = `betas[beta_of[j]]`. The
    first `exact` classes count with their q; of the others the first three sums take base alone,
    the last three base and, if there are `factors`, p times the slope of the tangent. `depth`,
    log₂(classes), is added to all logarithms, so that those of even predictions are about 0.
    """
    wide_vectors()
    logs = np.empty(LANES, np.float32)
    sums, work = np.empty((3, LANES), np.float32), np.empty((3, LANES), np.float32)
    total, first, second = sums[0], sums[1], sums[2]
    tails = np.empty((len(betas), 3, LANES), np.float32)
    logs_b = np.empty((base.shape[1] + 1, LANES), np.float32)
    parts_b = np.empty((base.shape[1] + 1, LANES), np.float32)
    folded = np.zeros((len(which), 6, _FOLDED), np.float32)
    for block in range(base.shape[0]):
        rows = _part(others, starts, begin + block, own)
        held = rows.shape[1] - 1
        few = min(exact, held + 1)
        lines = np.empty((len(betas), held + 1, 3, LANES), np.float32)
        _logs_of(base[block], held, depth, logs_b, parts_b)
        for b in range(len(betas)):
            _sum_tail(logs_b, few, betas[b], tails[b])
            if factors[b] > _f(0):
                _draw_lines(logs_b, parts_b, betas[b], shifts[b], factors[b], lines[b])
        for j in range(len(which)):
            beta = betas[beta_of[j]]
            tail, line, p, label = (
                tails[beta_of[j]],
                lines[beta_of[j]],
                rows[which[j]],
                own[begin + block, which[j]],
            )
            for lane in range(LANES):
                q = base[block, 0, lane] + share * label[lane]
                log_q = scaled_log2(larger(q, _LOWEST)) + depth
                term = exp2(beta * log_q)
                logs[lane] = log_q
                total[lane] = tail[0, lane] + term
                first[lane] = tail[1, lane] + term * log_q
                second[lane] = tail[2, lane] + term * log_q * log_q
            for c in range(1, few):
                for lane in range(LANES):
                    q = base[block, c, lane] + share * lengthened(p[c - 1, lane])
                    log_q = scaled_log2(larger(q, _LOWEST)) + depth
                    term = exp2(beta * log_q)
                    total[lane] += term
                    first[lane] += term * log_q
                    second[lane] += term * log_q * log_q
            _add_up(weights[block], beta, logs, sums, work, folded[j, :3])
            if factors[0] > _f(0):
                _add_lines(p, line, few - 1, held + 1, sums)
                _add_up(weights[block], beta, logs, sums, work, folded[j, 3:])
    for j in range(len(which)):
        for m in range(6):
            out[j, m] = _sum_folded(folded[j, m])
