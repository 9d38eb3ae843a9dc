"""What the warps share: mirrored indices, Pillow's cubic (a = −1), and when to ask it.

Each pixel is first computed in float32, in vectors. Where that value is so close to a whole
number that its fraction could fall either way, the pixel is computed again in float64, in
Pillow's order of operations; elsewhere both round to the same byte.
"""

from __future__ import annotations

from typing import Any

from relook.transforms.cpu.memory import bits, clamped, f32, helper, i32, u8

# Added to a level, this leaves the level in bits 11 to 18 and 1/2048ths of it below: the bits of
# a float32 between 4096 and 8192. (The first 19 bits of this number itself are all 0.)
_SHIFTED = f32(6144)
_FRACTION = 11
# Below 1 and from 255 on nothing depends on the fraction.
_LOWEST, _HIGHEST = f32(0.25), f32(255.25)
# The float32 values are off by less than 5e-4 (20 roundings of numbers below 600), and by 1/4096
# more in fixed point: 2/2048 covers both.
_NEAR = 2


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
def fixed(value: Any) -> Any:
    """Return a float32 level in fixed point, for `whole` and `doubt`."""
    return bits(clamped(value, _LOWEST, _HIGHEST) + _SHIFTED)


@helper
def whole(level: Any) -> Any:
    """Return the whole part of a level in fixed point, uint8."""
    return u8(i32(level >> _FRACTION))


@helper
def doubt(level: Any) -> Any:
    """Return 1 where a level in fixed point is so near a whole number that it may be wrong."""
    return u8(i32(i32(level + _NEAR) & i32(2**_FRACTION - 1)) <= i32(2 * _NEAR))


@helper
def whole_marks(count: int) -> int:
    """Round up to a multiple of 32: marks are looked through 32 at a time."""
    return (count + 31) // 32 * 32


@helper
def cubic(v0: float, v1: float, v2: float, v3: float, d: float) -> float:
    """Interpolate between v1 and v2 with a = −1, in Pillow's order of operations."""
    p2 = v2 - v0
    p3 = 2.0 * (v0 - v1) + v2 - v3
    p4 = v1 - v0 - v2 + v3
    return ((d * p4 + p3) * d + p2) * d + v1
