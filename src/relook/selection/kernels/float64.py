"""Scores in float64, compiled: for the few candidates that float32 cannot tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from relook.selection.kernels.float32 import built, compiled, wide_vectors, widened

_LOWEST = np.exp(-80.0)
_LN2 = np.log(2.0)
_LOG2E = 1 / _LN2
_SQRT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_LANES = 16  # classes summed side by side, so that the sums vectorise in a fixed order
_NOTHING = -1e6  # a gap at which exp2 is at its floor, which no sum notices


def _integer() -> Any:
    return ir.IntType(64)


@built
def _exponent(typing: Any, value: Any) -> Any:
    """Return k, for value = m·2^k with m in [√½, √2)."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], _integer())
        bits = builder.sub(bits, ir.Constant(_integer(), _SQRT_HALF))
        whole = builder.trunc(builder.ashr(bits, ir.Constant(_integer(), 52)), ir.IntType(32))
        return builder.sitofp(whole, ir.DoubleType())

    return types.float64(types.float64), build


@built
def _mantissa(typing: Any, value: Any) -> Any:
    """Return m in [√½, √2), for value = m·2^k."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], _integer())
        bits = builder.sub(bits, ir.Constant(_integer(), _SQRT_HALF))
        bits = builder.and_(bits, ir.Constant(_integer(), (1 << 52) - 1))
        bits = builder.add(bits, ir.Constant(_integer(), _SQRT_HALF))
        return builder.bitcast(bits, ir.DoubleType())

    return types.float64(types.float64), build


@built
def _rounded(typing: Any, value: Any) -> Any:
    """Return the nearest whole number."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rint = builder.module.declare_intrinsic("llvm.rint", [ir.DoubleType()])
        return builder.call(rint, args)

    return types.float64(types.float64), build


@built
def _scaled(typing: Any, value: Any, power: Any) -> Any:
    """Return value·2^power for a whole power; inputs and result are normal numbers."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        power = builder.sext(builder.fptosi(args[1], ir.IntType(32)), _integer())
        shift = builder.shl(power, ir.Constant(_integer(), 52))
        bits = builder.add(builder.bitcast(args[0], _integer()), shift)
        return builder.bitcast(bits, ir.DoubleType())

    return types.float64(types.float64, types.float64), build


@built
def _larger(typing: Any, one: Any, other: Any) -> Any:
    """Return the larger of two numbers without a branch."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return types.float64(types.float64, types.float64), build


@compiled
def log2(value: float) -> Any:
    """Return log₂ of a normal positive number, to 3e-16 of the result or of 1."""
    m = _mantissa(value)
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
    return p * s + _exponent(value)


@compiled
def exp2(value: float) -> Any:
    """Return 2^value for a value up to 1000, to 5e-16 of the result; from −1000 up."""
    value = _larger(value, -1000.0)
    whole = _rounded(value)
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
    return _scaled(p, whole)


@compiled
def _extent(values: Any, high: Any, low: Any) -> Any:
    """Return the largest value and minus the smallest; there are as many as whole lanes take."""
    for lane in range(_LANES):
        high[lane], low[lane] = values[lane], -values[lane]
    for begin in range(_LANES, len(values), _LANES):
        for lane in range(_LANES):
            high[lane] = _larger(values[begin + lane], high[lane])
            low[lane] = _larger(-values[begin + lane], low[lane])
    return high.max(), low.max()


@compiled
def exact_values(
    log_probs: Any, mean: Any, step: int, labels: Any, weights: Any, beta: float, out: Any
) -> None:
    """Write score, slope, minus the second derivative, and the lowest gap of all: `out` `[4]`.

    They are one candidate's, at β. `log_probs` `[n, c]` are the candidate's, `mean` `[n, c]` is
    the policy's average before entry number `step`; `weights` `[n]` sum to 1 over all images.
    A gap is a log-probability minus the image's largest.
    """
    wide_vectors()
    images, classes = log_probs.shape
    padded = (classes + _LANES - 1) // _LANES * _LANES
    gaps = np.empty(padded)
    total, first, second = np.empty(_LANES), np.empty(_LANES), np.empty(_LANES)
    share, before = 1 / step, step - 1.0
    out[:] = 0.0
    for row in range(images):
        for c in range(classes):
            p = exp2(_LOG2E * widened(log_probs[row, c]))
            gaps[c] = log2(_larger((p + before * mean[row, c]) * share, _LOWEST))
        gaps[classes:] = gaps[0]
        top, depth = _extent(gaps, total, first)
        gaps[classes:] = _NOTHING
        out[3] = min(out[3], _LN2 * (-depth - top))
        total[:], first[:], second[:] = 0.0, 0.0, 0.0
        for begin in range(0, padded, _LANES):
            for lane in range(_LANES):
                gap = gaps[begin + lane] - top
                term = exp2(beta * gap)
                total[lane] += term
                first[lane] += term * gap
                second[lane] += term * gap * gap
        own, mass = gaps[labels[row]] - top, total.sum()
        average = first.sum() / mass
        weight = weights[row]
        out[0] += weight * _LN2 * (beta * own - np.log2(mass))
        out[1] += weight * _LN2 * (own - average)
        out[2] += weight * _LN2 * _LN2 * max(second.sum() / mass - average * average, 0.0)
