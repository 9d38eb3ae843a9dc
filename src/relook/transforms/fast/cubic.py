"""What the warps share: mirrored indices, Pillow's cubic (a = −1), and when to ask it.

Each pixel is first computed in float32, in vectors. Where that value is so close to a whole
number that its fraction could fall either way, the pixel is computed again in float64, in
Pillow's order of operations; elsewhere both round to the same byte.
"""

from __future__ import annotations

from typing import Any

from relook.transforms.fast.memory import f32, helper, i32, u8

# The float32 values are off by less than 5e-4: 20 roundings of numbers below 600.
_NEAR = f32(1 / 1024)
_HALF = f32(0.5)


@helper
def fold(index: int, length: int) -> int:
    """Mirror an index into 0 … length − 1 without repeating the edge, from any distance."""
    if index < 0:
        index = -index
    if index >= length:
        period = 2 * (length - 1)
        if index >= period:
            index %= period
        if index >= length:
            index = period - index
    return index


@helper
def doubt(value: Any) -> Any:
    """Return 1 where a value is near a whole number from 1 up (at 0 nothing changes), else 0."""
    whole = i32(value + _HALF)
    return u8((abs(value - f32(whole)) < _NEAR) & (whole != 0))


@helper
def whole_eights(count: int) -> int:
    """Round up to a multiple of eight: marks are looked through eight at a time."""
    return (count + 7) // 8 * 8


@helper
def cubic(v0: float, v1: float, v2: float, v3: float, d: float) -> float:
    """Interpolate between v1 and v2 with a = −1, in Pillow's order of operations."""
    p2 = v2 - v0
    p3 = 2.0 * (v0 - v1) + v2 - v3
    p4 = v1 - v0 - v2 + v3
    return ((d * p4 + p3) * d + p2) * d + v1
