"""The fast arithmetic of the search, compiled by numba: float32 in vectors, sums in float64.

Images stand side by side in lanes, so that ten classes fill the vector unit as well as a
thousand. A pool is `[candidate, block, class, lane]`, the classes of each image in an order of
its own with the label's first; every sum has one fixed order, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LANES = 64
"""How many images stand side by side; the last block is filled up with weight 0."""

built: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""Makes a function of LLVM instructions: for what Python has no words for."""

_SHIFT = np.float32(24)  # probabilities are stored × 2^24, so that e^−103 is a normal number
_SCALE = 2.0**24
_LOWEST = np.float32(_SCALE * np.exp(-80.0))
_LN2 = np.log(2.0)
_FASTMATH = {"contract", "nsz"}  # fused multiply-adds; nothing that reorders a sum


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, without the interpreter's lock, and keep the machine code.

    Where no directory for the machine code can be written, each process compiles again.
    """
    options: dict[str, Any] = {"nogil": True, "fastmath": _FASTMATH, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place for its cache
        return njit(**options)(function)


def _exponent_less(shift: int) -> Callable[..., Any]:
    """Make a function that returns k − shift as float32, for value = m·2^k, m in [√½, √2)."""

    @built
    def exponent(typing: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            i32 = ir.IntType(32)
            start = ir.Constant(i32, 0x3F3504F3 + (shift << 23))
            bits = builder.sub(builder.bitcast(args[0], i32), start)
            return builder.sitofp(builder.ashr(bits, ir.Constant(i32, 23)), ir.FloatType())

        return types.float32(types.float32), build

    return exponent


_exponent, _exponent_less_24 = _exponent_less(0), _exponent_less(24)


@built
def _mantissa(typing: Any, value: Any) -> Any:
    """Return m in [√½, √2), for value = m·2^k."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        bits = builder.sub(builder.bitcast(args[0], i32), ir.Constant(i32, 0x3F3504F3))
        bits = builder.and_(bits, ir.Constant(i32, 0x007FFFFF))
        return builder.bitcast(builder.add(bits, ir.Constant(i32, 0x3F3504F3)), ir.FloatType())

    return types.float32(types.float32), build


@built
def _rounded(typing: Any, value: Any) -> Any:
    """Return the nearest whole number as float32."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rint = builder.module.declare_intrinsic("llvm.rint", [ir.FloatType()])
        return builder.call(rint, args)

    return types.float32(types.float32), build


@built
def _scaled(typing: Any, value: Any, power: Any) -> Any:
    """Return value·2^power for a whole power; both results and inputs are normal numbers."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32 = ir.IntType(32)
        shift = builder.shl(builder.fptosi(args[1], i32), ir.Constant(i32, 23))
        return builder.bitcast(builder.add(builder.bitcast(args[0], i32), shift), ir.FloatType())

    return types.float32(types.float32, types.float32), build


@built
def larger(typing: Any, one: Any, other: Any) -> Any:
    """Return the larger of two float32 without a branch, which would become a masked store."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return types.float32(types.float32, types.float32), build


@built
def wide_vectors(typing: Any) -> Any:
    """Ask for the widest vectors in this function; the compiler's own choice is half of them."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.none(), build


@built
def widened(typing: Any, value: Any) -> Any:
    """Return float16, given as its bits, as float32; float32 and float64 as they are."""
    if not isinstance(value, types.Integer):
        return value(value), lambda context, builder, signature, args: args[0]

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        i32, f32 = ir.IntType(32), ir.FloatType()
        bits = builder.zext(args[0], i32)
        size = builder.and_(bits, ir.Constant(i32, 0x7FFF))
        sign = builder.shl(builder.sub(bits, size), ir.Constant(i32, 16))
        shifted = builder.bitcast(builder.shl(size, ir.Constant(i32, 13)), f32)
        number = builder.fmul(shifted, ir.Constant(f32, 2.0**112))  # the exponents' biases differ
        finite = builder.icmp_signed("<", size, ir.Constant(i32, 0x7C00))
        special = builder.or_(builder.shl(size, ir.Constant(i32, 13)), ir.Constant(i32, 0x7F800000))
        number = builder.select(finite, number, builder.bitcast(special, f32))
        return builder.bitcast(builder.or_(builder.bitcast(number, i32), sign), f32)

    return types.float32(types.uint16), build


_f = np.float32
_L0, _L1, _L2 = _f(1.4426950036511252), _f(-0.7213473468675704), _f(0.48091064329962124)
_L3, _L4, _L5 = _f(-0.36070367753722593), _f(0.2879162309612288), _f(-0.2389449274561882)
_L6, _L7, _L8 = _f(0.21571589095408042), _f(-0.20726914367317215), _f(0.1258354992571705)
_E0, _E1, _E2 = _f(1.000000071655809), _f(0.6931469670515349), _f(0.24022119717699553)
_E3, _E4, _E5 = _f(0.05550713291672554), _f(0.009675541682145029), _f(0.0013276467200633766)
_ONE, _DEEPEST, _HIGHEST = _f(1), _f(-125), _f(60)
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)


@compiled
def _log2_of_mantissa(value: np.float32) -> Any:
    x = _mantissa(value) - _ONE
    p = _L8 * x + _L7
    p = p * x + _L6
    p = p * x + _L5
    p = p * x + _L4
    p = p * x + _L3
    p = p * x + _L2
    p = p * x + _L1
    p = p * x + _L0
    return p * x


@compiled
def log2(value: np.float32) -> Any:
    """Return log₂ of a normal positive float32; polynomial, relative error 1.1e-7."""
    return _log2_of_mantissa(value) + _exponent(value)


@compiled
def scaled_log2(value: np.float32) -> Any:
    """Return log₂ of value·2^−24, as precisely."""
    return _log2_of_mantissa(value) + _exponent_less_24(value)


@compiled
def exp2(value: np.float32) -> Any:
    """Return 2^value for a float32 up to 126; polynomial, relative error 2.1e-7; from −125 up."""
    value = larger(value, _DEEPEST)
    whole = _rounded(value)
    x = value - whole
    p = _E5 * x + _E4
    p = p * x + _E3
    p = p * x + _E2
    p = p * x + _E1
    p = p * x + _E0
    return _scaled(p, whole)


@compiled
def scaled_exp(value: np.float32) -> Any:
    """Return e^value·2^24 for a value up to 40, relative error 3e-7; 0 below −103."""
    inside = larger(value, _f(-103))
    whole = _rounded(inside * _LOG2E)
    x = ((inside - whole * _LN2_HIGH) - whole * _LN2_LOW) * _LOG2E
    result = _scaled(exp2(x), whole + _SHIFT)
    return result if value >= _f(-103) else _f(0)


@compiled
def tree_sum(values: Any) -> float:
    """Sum the lanes in a fixed order, and destroy them."""
    for lane in range(32):  # of a known length: each loop is an instruction or two
        values[lane] += values[lane + 32]
    for lane in range(16):
        values[lane] += values[lane + 16]
    for lane in range(8):
        values[lane] += values[lane + 8]
    for lane in range(4):
        values[lane] += values[lane + 4]
    values[0] += values[2]
    values[1] += values[3]
    values[0] += values[1]
    return float(values[0])


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

    `pool` `[candidate, block, class, lane]` are probabilities p × 2^24, of which the blocks from
    `begin` on are meant; `base` `[block, class, lane]` is (t − 1)π/t × 2^24, so that
    q = base + share·p; `weights` `[block, lane]`.
    Candidate `which[j]` is evaluated at β = `betas[j]`: Σ w·(β·log q_y − log Σ q^β), its
    derivative, and minus its second derivative, in nats. The sum goes over the first `classes`
    classes; `tails[tail_of[j]]` `[3, block, lane]` stands for the others:
    their q^β, q^β·log₂ q and q^β·(log₂ q)². If `rest` `[block, lane]` is not empty, the pool's
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
                    log_q = scaled_log2(larger(q, _LOWEST))
                    gaps[c, lane] = log_q
                    top[lane] = larger(log_q, top[lane])
            for lane in range(LANES):
                high = top[lane]
                # Bounded, lest the floor of exp2 in the tail should count; less tail is safe.
                scale = exp2(-larger(beta * high, -_HIGHEST))
                none, one, two = tail[0, block, lane], tail[1, block, lane], tail[2, block, lane]
                if has_rest:
                    q = rest[block, lane] + share * part[classes, lane]
                    log_q = scaled_log2(larger(q, _LOWEST))
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
            out[j, 0] += _LN2 * tree_sum(total)
            out[j, 1] += _LN2 * tree_sum(first)
            out[j, 2] += _LN2 * _LN2 * tree_sum(second)


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
                base[block, c, lane] = np.float32(_SCALE * factor * rows[place])


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
