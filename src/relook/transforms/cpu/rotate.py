"""Rotation: bicubic (a = −1) of the image continued by reflection, with Pillow's bytes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.apply import Operation, Shape
from relook.transforms.cpu.instructions import (
    as_level,
    compiled,
    copy_image,
    cubic,
    f32,
    fold,
    helper,
    i32,
    mix_four,
    read,
    round_four,
    u8,
    write,
)
from relook.transforms.geometry import rotations
from relook.transforms.steps import AppliedStep

# Coordinates are in fixed point with this many fractional bits.
_BITS = 40


def rotate(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `rotate`."""
    values, draws = step.tensors()
    return Operation(_rotate, (rotations(draws["sign"] * values, shape[3], shape[2]).numpy(),))


@compiled
def _rotate(images: Any, out: Any, matrices: Any) -> None:
    """Sample each image at `a·x + b·y + c`, `d·x + e·y + f`; matrices float64 `[n, 6]`."""
    n, channels, height, width = images.shape
    length = (width + 3) // 4 * 4
    at = np.zeros(length, np.int32)
    across, down = np.zeros(4 * length, np.float32), np.zeros(4 * length, np.float32)
    sums, row = np.empty(4 * length, np.float32), np.empty(3 * length, np.uint8)
    padded = np.empty(0, np.int32)
    for i in range(n):
        m = matrices[i]
        if m[0] == 1.0 and m[1] == 0.0 and m[2] == 0.0 and m[3] == 0.0 and m[5] == 0.0:
            copy_image(images, i, out)
            continue
        left, right = _margins(m[0], m[1], m[2], width, height, width)
        top, bottom = _margins(m[3], m[4], m[5], width, height, height)
        wide, size = width + left + right, (width + left + right) * (height + top + bottom)
        if size > len(padded):
            padded = np.empty(size, np.int32)
        _pad_by_reflection(images, i, left, top, wide, size, padded)
        for y in range(height):
            _write_taps(m, y, width, length, left, top, wide, at, across, down)
            for x in range(0, width, 4):
                mix_four(padded, at, wide, across, down, x, length, sums)
            for x in range(0, width, 4):
                unsure = round_four(sums, x, length, row)
                if unsure != 0:
                    _recompute(padded, wide, left, top, m, x, y, unsure, row, length)
            for channel in range(channels):
                to = ((i * channels + channel) * height + y) * width
                _copy(row, channel * length, width, out, to)


@helper
def _copy(row: Any, start: int, count: int, out: Any, to: int) -> None:
    for x in range(count):
        write(out, to + x, read(row, start + x, 6), 6)


@helper
def _margins(a: float, b: float, c: float, width: int, height: int, length: int) -> Any:
    """Return how far the taps reach beyond the image along one axis, before and after it."""
    low = min(0.5 * a, (width - 0.5) * a) + min(0.5 * b, (height - 0.5) * b) + c - 0.5
    high = max(0.5 * a, (width - 0.5) * a) + max(0.5 * b, (height - 0.5) * b) + c - 0.5
    before = 2 - np.int64(math.floor(low))
    after = np.int64(math.floor(high)) + 4 - length
    return max(before, 0), max(after, 0)


@helper
def _pad_by_reflection(
    images: Any, i: int, left: int, top: int, wide: int, size: int, padded: Any
) -> None:
    """Write the image continued by reflection, rows `wide` long, a pixel's levels in one int32."""
    _, channels, height, width = images.shape
    pixels = height * width
    for y in range(height):
        base = i * channels * pixels + y * width
        to = (y + top) * wide + left
        if channels == 3:
            for x in range(width):
                red, green = i32(read(images, base + x, 1)), i32(read(images, base + pixels + x, 1))
                blue = i32(read(images, base + 2 * pixels + x, 1))
                write(padded, to + x, i32(red | i32(green << 8) | i32(blue << 16)), 1)
        else:
            for x in range(width):
                write(padded, to + x, i32(read(images, base + x, 2)), 2)
        for x in range(-left, 0):
            write(padded, to + x, read(padded, to + fold(x, width), 3), 3)
        for x in range(width, wide - left):
            write(padded, to + x, read(padded, to + fold(x, width), 7), 7)
    for y in range(size // wide):
        if y < top or y >= top + height:
            _copy_row(padded, (fold(y - top, height) + top) * wide, y * wide, wide)


@helper
def _copy_row(padded: Any, source: int, to: int, wide: int) -> None:
    for x in range(wide):
        write(padded, to + x, read(padded, source + x, 18), 18)


@helper
def _write_taps(
    m: Any,
    y: int,
    width: int,
    length: int,
    left: int,
    top: int,
    wide: int,
    at: Any,
    across: Any,
    down: Any,
) -> None:
    """Write each pixel's first tap and its weights, four across and four down, `length` apart.

    Fixed point suffices: an error of 1e-9 in a fraction only matters to pixels that are unsure.
    """
    right, step_right = _fixed_point(_along(m[0], m[1], m[2], 0, y) + left - 1), _fixed_point(m[0])
    below, step_below = _fixed_point(_along(m[3], m[4], m[5], 0, y) + top - 1), _fixed_point(m[3])
    for x in range(width):
        write(at, x, i32(i32(below >> _BITS) * i32(wide) + i32(right >> _BITS)), 4)
        _write_weights(across, x, length, _fraction(right))
        _write_weights(down, x, length, _fraction(below))
        right += step_right
        below += step_below


@helper
def _fixed_point(number: float) -> Any:
    return np.int64(math.floor(number * 2.0**_BITS + 0.5))


@helper
def _fraction(place: Any) -> Any:
    """Return the fraction of a number in fixed point, float32."""
    return f32(i32((place >> (_BITS - 31)) & 0x7FFFFFFF)) * f32(2.0**-31)


@helper
def _write_weights(weights: Any, at: int, apart: int, d: Any) -> None:
    square = d * d
    write(weights, at, d * (f32(2) * d - f32(1) - square), 4)
    write(weights, at + apart, f32(1) + square * (d - f32(2)), 4)
    write(weights, at + 2 * apart, d * (f32(1) + d - square), 4)
    write(weights, at + 3 * apart, square * (d - f32(1)), 4)


@helper
def _along(a: float, b: float, c: float, x: int, y: int) -> float:
    """Return the source coordinate of pixel x, y along one axis, from the first pixel's centre."""
    return a * (x + 0.5) + b * (y + 0.5) + c - 0.5


@helper
def _recompute(
    padded: Any,
    wide: int,
    left: int,
    top: int,
    m: Any,
    x: int,
    y: int,
    unsure: Any,
    row: Any,
    length: int,
) -> None:
    """Compute the unsure levels of four pixels again, as Pillow does."""
    for pixel in range(4):
        which = (unsure >> (4 * pixel)) & 7
        if which == 0 or x + pixel >= length:
            continue
        across = _along(m[0], m[1], m[2], x + pixel, y)
        below = _along(m[3], m[4], m[5], x + pixel, y)
        column, line = math.floor(across), math.floor(below)
        place = (np.int64(line) + top - 1) * wide + np.int64(column) + left - 1
        flat = _flat(padded, place, wide)
        for channel in range(3):
            if (which >> channel) & 1:
                level = u8(read(padded, place, 9) >> (8 * channel))
                if not flat:
                    level = _pixel(padded, place, wide, channel, across - column, below - line)
                write(row, channel * length + x + pixel, level, 9)


@helper
def _flat(padded: Any, at: int, wide: int) -> Any:
    """Return whether 4 × 4 pixels are all equal; then so is any value between them."""
    first, different = read(padded, at, 10), i32(0)
    for tap in range(4):
        for row in range(4):
            different |= i32(read(padded, at + row * wide + tap, 10) ^ first)
    return different == 0


@helper
def _pixel(padded: Any, at: int, wide: int, channel: int, dx: float, dy: float) -> Any:
    """Return one level, in Pillow's order of operations."""
    a = _row_cubic(padded, at, channel, dx)
    b = _row_cubic(padded, at + wide, channel, dx)
    c = _row_cubic(padded, at + 2 * wide, channel, dx)
    d = _row_cubic(padded, at + 3 * wide, channel, dx)
    return as_level(cubic(a, b, c, d, dy))


@helper
def _row_cubic(padded: Any, at: int, channel: int, d: float) -> Any:
    return cubic(
        _tap(padded, at, channel),
        _tap(padded, at + 1, channel),
        _tap(padded, at + 2, channel),
        _tap(padded, at + 3, channel),
        d,
    )


@helper
def _tap(padded: Any, at: int, channel: int) -> float:
    return float((read(padded, at, 11) >> (8 * channel)) & 255)
