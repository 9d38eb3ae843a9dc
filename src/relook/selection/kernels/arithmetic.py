"""Arithmetic that numba compiles into vectors: logarithms, powers, sums over lanes.

Most is float32; `log2_double` and `exp2_double` are for the few candidates that float32 cannot
separate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from relook.transforms.cpu.instructions import compile_with

LANES = 64
"""Images in a block; the last block is padded with weight 0."""

built: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""Makes a function of LLVM instructions that Python cannot express."""

SCALE = 2.0**24
"""Probabilities are stored × 2^24, so that e^−103 is a normal number."""

LOWEST = np.float32(SCALE * np.exp(-80.0))
"""The floor of scaled probabilities."""

LN2 = np.log(2.0)
_SHIFT = np.float32(24)
_FASTMATH = {"contract", "nsz"}  # fused multiply-adds; nothing that reorders a sum


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, and cache the machine code."""
    return compile_with(function, cache=True, fastmath=_FASTMATH)


i32 = np.int32
_ROOT, _ROOT_24 = i32(0x3F3504F3), i32(0x3F3504F3 + (24 << 23))
"""The bits of √½, and of √½·2^24: a number is m·2^k with m in [√½, √2)."""

_ROOT_DOUBLE = np.int64(0x3FE6A09E667F3BCD)


@built
def larger(typing: Any, one: Any, other: Any) -> Any:
    """Return the larger of two floats without a branch, which would become a masked store."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return one(one, other), build


@built
def wide_vectors(typing: Any) -> Any:
    """Use the widest vectors in this function; the compiler's own choice is half as wide."""

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
_ONE, _DEEPEST = _f(1), _f(-125)
_LOG2E, _LN2_HIGH, _LN2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)


@compiled
def _log2_of_bits(bits: Any) -> Any:
    """Return log₂ of a number whose bits are these and those of √½, or of √½·2^24."""
    x = i32(i32(bits & i32((1 << 23) - 1)) + _ROOT).view(np.float32) - _ONE
    p = _L8 * x + _L7
    p = p * x + _L6
    p = p * x + _L5
    p = p * x + _L4
    p = p * x + _L3
    p = p * x + _L2
    p = p * x + _L1
    p = p * x + _L0
    return p * x + _f(i32(bits >> i32(23)))


@compiled
def log2(value: Any) -> Any:
    """Return log₂ of a normal positive float32; polynomial, relative error 1.1e-7."""
    return _log2_of_bits(i32(_f(value).view(np.int32) - _ROOT))


@compiled
def scaled_log2(value: Any) -> Any:
    """Return log₂ of value·2^−24, with the same precision."""
    return _log2_of_bits(i32(_f(value).view(np.int32) - _ROOT_24))


@compiled
def _scaled(value: Any, power: np.float32) -> Any:
    """Return value·2^power for a whole power; both results and inputs are normal numbers."""
    return i32(_f(value).view(np.int32) + i32(i32(power) << i32(23))).view(np.float32)


@compiled
def exp2(value: np.float32) -> Any:
    """Return 2^value for a float32 from −125 to 126; polynomial, relative error 2.1e-7."""
    value = larger(value, _DEEPEST)
    whole = np.rint(value)
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
    whole = np.rint(inside * _LOG2E)
    x = ((inside - whole * _LN2_HIGH) - whole * _LN2_LOW) * _LOG2E
    result = _scaled(exp2(x), whole + _SHIFT)
    return result if value >= _f(-103) else _f(0)


@compiled
def log2_double(value: Any) -> Any:
    """Return log₂ of a normal positive number, to 3e-16 of the result or of 1."""
    bits = np.float64(value).view(np.int64) - _ROOT_DOUBLE
    m = np.int64((bits & np.int64((1 << 52) - 1)) + _ROOT_DOUBLE).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 0.19138111355617068 * z + 0.1911337912138523
    p = p * z + 0.22199005137474054
    p = p * z + 0.2623075424233666
    p = p * z + 0.32059890460723844
    p = p * z + 0.4121985830729923
    p = p * z + 0.5770780163556951
    p = p * z + 0.9617966939259754
    p = p * z + 2.8853900817779268
    return p * s + np.float64(i32(bits >> 52))  # few processors convert wider integers in vectors


@compiled
def exp2_double(value: float) -> Any:
    """Return 2^value for a value from −1000 to 1000, to 5e-16 of the result."""
    value = larger(value, -1000.0)
    whole = np.rint(value)
    x = value - whole
    p = 4.4558179083360645e-10 * x + 7.074194297288521e-09
    p = p * x + 1.0178057087733941e-07
    p = p * x + 1.3215432535912375e-06
    p = p * x + 1.5252733841556773e-05
    p = p * x + 0.00015403530463724353
    p = p * x + 0.001333355814640647
    p = p * x + 0.009618129107587256
    p = p * x + 0.055504108664821625
    p = p * x + 0.24022650695910158
    p = p * x + 0.6931471805599453
    p = p * x + 1.0
    return np.int64(np.float64(p).view(np.int64) + (np.int64(i32(whole)) << 52)).view(np.float64)


@compiled
def tree_sum(values: Any) -> float:
    """Sum the lanes in a fixed order, overwriting them."""
    for lane in range(32):  # a fixed length: each loop is an instruction or two
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
