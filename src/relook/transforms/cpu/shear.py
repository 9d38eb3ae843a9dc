"""Shears: rows or columns shifted by fractions of a pixel, with Pillow's bytes.

Each pixel is first computed in float32, in vectors. If that value is so close to an integer that
its error could change the byte, the pixel is computed again in float64, in Pillow's order of
operations; otherwise both truncate to the same byte. (`rotate` works in the same way.)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.apply import Operation, Shape, by_kernel
from relook.transforms.cpu.instructions import (
    as_level,
    clamped,
    compiled,
    contracted,
    copy_image,
    cubic,
    f32,
    fold,
    helper,
    i32,
    read,
    read_eight,
    transpose,
    u8,
    write,
)
from relook.transforms.steps import AppliedStep

# Steeper shears round each pixel of a row differently; no recipe reaches them.
_STEEPEST = 1000.0
# Added to a level, this puts the level into bits 11 to 18 and 1/2048ths of it below, as these are
# the bits of a float32 between 4096 and 8192. (The lowest 19 bits of this number itself are 0.)
_SHIFTED = f32(6144)
_FRACTION = 11
# Below 1 and from 255 on, the byte does not depend on the fraction.
_LOWEST, _HIGHEST = f32(0.25), f32(255.25)
# The float32 values are off by less than 5e-4 (20 roundings of numbers below 600), and by 1/4096
# more in fixed point: 2/2048 covers both.
_NEAR = 2


def shear_x(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `shear_x`."""
    return _shear(step, columns=False)


def shear_y(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `shear_y`."""
    return _shear(step, columns=True)


def _shear(step: AppliedStep, columns: bool) -> Operation:
    slopes = step.draws["sign"] * step.values
    if np.abs(slopes).max(initial=0.0) > _STEEPEST:
        return by_kernel(step)
    return Operation(_slide, (slopes, step.draws["edge"]), (columns,))


@compiled
def _slide(images: Any, out: Any, slopes: Any, edges: Any, columns: bool) -> None:
    """Slide row y by `slope · (y + ½)`, counted from the top (edge 0) or the bottom (1).

    Or columns, counted from the left or the right, as the rows of the transposed image.
    """
    n, channels, height, width = images.shape
    count, length = (width, height) if columns else (height, width)
    row = np.empty(length + 5, np.uint8)
    near = np.zeros(_round_up(length), np.uint8)
    room = height * width if columns else 0
    before, after = np.empty(room, np.uint8), np.empty(room, np.uint8)
    for i in range(n):
        slope, edge = slopes[i], edges[i]
        if slope == 0.0:
            copy_image(images, i, out)
            continue
        for channel in range(channels):
            base = (i * channels + channel) * height * width
            if columns:
                transpose(images, base, height, width, width, before, 0)
                _shear_plane(before, 0, count, length, slope, edge, after, 0, row, near)
                transpose(after, 0, width, height, height, out, base)
            else:
                _shear_plane(images, base, count, length, slope, edge, out, base, row, near)


@helper
def _shear_plane(
    images: Any,
    base: int,
    height: int,
    width: int,
    slope: float,
    edge: float,
    out: Any,
    to: int,
    row: Any,
    near: Any,
) -> None:
    """Slide the rows of one plane; `row` and `near` are buffers for a row's taps and marks."""
    for y in range(height):
        centre = y + 0.5
        shift = slope * (height - centre if edge == 1.0 else centre)
        start = math.floor(0.5 + shift - 0.5)
        weights = _weights(0.5 + shift - 0.5 - start)
        # One extra tap at either end, which a pixel's own rounding may need.
        first = np.int64(start) - 2
        _mirrored_row(images, base + y * width, width, first, row)
        _combine_row(row, weights, width, out, to + y * width, near)
        _recompute_row(row, first, width, shift, out, to + y * width, near)


@helper
def _weights(d: float) -> Any:
    """Return the weights of the outer taps and of the third for the fraction d, float32."""
    return (
        f32(d * (2.0 * d - 1.0 - d * d)),
        f32(d * (1.0 + d - d * d)),
        f32(d * d * (d - 1.0)),
    )


@helper
def _mirrored_row(images: Any, base: int, width: int, first: int, row: Any) -> None:
    """Write the pixels from `first` on of a row continued by reflection."""
    size = len(row)
    if first <= -width or first + size > 2 * width - 1:
        for j in range(size):
            write(row, j, read(images, base + fold(first + j, width), 7), 7)
        return
    start, last = max(-first, 0), base + 2 * (width - 1) - first
    stop = min(width - first, size)
    for j in range(start):
        write(row, j, read(images, base - first - j, 8), 8)
    for j in range(start, stop):
        write(row, j, read(images, base + first + j, 9), 9)
    for j in range(stop, size):
        write(row, j, read(images, last - j, 10), 10)


@contracted
def _combine_row(row: Any, weights: Any, width: int, out: Any, base: int, near: Any) -> None:
    """Filter one row in float32; mark the pixels near an integer."""
    w0, w2, w3 = weights
    for x in range(width):
        middle = i32(read(row, x + 2, 11))
        d0, d2 = i32(i32(read(row, x + 1, 11)) - middle), i32(i32(read(row, x + 3, 11)) - middle)
        d3 = i32(i32(read(row, x + 4, 11)) - middle)
        level = _fixed(f32(middle) + (w0 * f32(d0) + w2 * f32(d2) + w3 * f32(d3)))
        write(out, base + x, _whole(level), 11)
        # If all taps are equal, so is the value, exactly.
        write(near, x, u8(_is_unsure(level) & u8(i32(d0 | d2 | d3) != i32(0))), 11)


@helper
def _recompute_row(
    row: Any, first: int, width: int, shift: float, out: Any, base: int, near: Any
) -> None:
    """Compute the marked pixels of a sheared row again, as Pillow does."""
    for some in range(0, len(near), 32):
        marks = read_eight(near, some, 12) | read_eight(near, some + 8, 12)
        marks |= read_eight(near, some + 16, 12) | read_eight(near, some + 24, 12)
        if marks == 0:
            continue
        for x in range(some, min(some + 32, width)):
            if read(near, x, 12) != 0:
                position = x + 0.5 + shift - 0.5
                pixel = math.floor(position)
                at = np.int64(pixel) - 1 - first
                write(out, base + x, _between(row, at, position - pixel), 12)


@helper
def _between(row: Any, at: int, d: float) -> Any:
    """Return the level at the fraction d between the second and the third of four taps."""
    v0, v1 = float(read(row, at, 13)), float(read(row, at + 1, 13))
    v2, v3 = float(read(row, at + 2, 13)), float(read(row, at + 3, 13))
    return as_level(cubic(v0, v1, v2, v3, d))


@helper
def _fixed(value: Any) -> Any:
    """Return a float32 level in fixed point, for `_whole` and `_is_unsure`."""
    return f32(clamped(value, _LOWEST, _HIGHEST) + _SHIFTED).view(np.int32)


@helper
def _whole(level: Any) -> Any:
    """Return the whole part of a level in fixed point, uint8."""
    return u8(i32(level >> _FRACTION))


@helper
def _is_unsure(level: Any) -> Any:
    """Return 1 if a level in fixed point is so near an integer that it may be wrong, else 0."""
    return u8(i32(i32(level + _NEAR) & i32(2**_FRACTION - 1)) <= i32(2 * _NEAR))


@helper
def _round_up(count: int) -> int:
    """Round up to a multiple of 32, as marks are scanned 32 at a time."""
    return (count + 31) // 32 * 32
