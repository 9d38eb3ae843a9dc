"""Shears: rows or columns slid by their own fraction of a pixel, with the bytes of Pillow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.fast.cubic import cubic, doubt, fold, whole_eights
from relook.transforms.fast.memory import (
    compiled,
    contracted,
    copy_image,
    f32,
    helper,
    level32,
    level64,
    read,
    read_eight,
    u8,
    write,
)

# A line's pixels share one fraction to about 1e-13; this close to 0 or 1 they may not.
_WHOLE = 1e-6


@helper
def _uneven(d0: Any, d2: Any, d3: Any) -> Any:
    """Return 0 where the taps are all alike, else 1: then the value is exact as it is."""
    return u8(abs(d0) + abs(d2) + abs(d3) != f32(0))


@helper
def _weights(d: float) -> Any:
    """Return the four taps' weights for the fraction d, float32."""
    return (
        f32(d * (2.0 * d - 1.0 - d * d)),
        f32(1.0 + d * d * (d - 2.0)),
        f32(d * (1.0 + d - d * d)),
        f32(d * d * (d - 1.0)),
    )


@compiled
def shear_x(images: Any, out: Any, slopes: Any, edges: Any) -> None:
    """Slide row y by `slope · (y + ½)`, counted from the top (edge 0) or the bottom (1)."""
    n, channels, height, width = images.shape
    row = np.empty(width + 3, np.float32)
    near = np.zeros(whole_eights(width), np.uint8)
    for i in range(n):
        if slopes[i] == 0.0:
            copy_image(images, i, out)
            continue
        for y in range(height):
            shift = _shift(slopes[i], edges[i], y, height)
            start = math.floor(0.5 + shift - 0.5)
            fraction = 0.5 + shift - 0.5 - start
            whole = fraction < _WHOLE or fraction > 1.0 - _WHOLE
            weights = _weights(fraction)
            for channel in range(channels):
                base = ((i * channels + channel) * height + y) * width
                _mirrored_row(images, base, width, np.int64(start) - 1, row)
                _combine_row(row, weights, width, out, base, near)
                if whole:
                    _mark_all(near, width)
                _settle_row(images, base, width, shift, out, near)


@helper
def _mark_all(near: Any, width: int) -> None:
    for x in range(width):
        write(near, x, u8(1), 17)


@helper
def _shift(slope: float, edge: float, at: int, length: int) -> float:
    centre = at + 0.5
    return slope * (length - centre if edge == 1.0 else centre)


@helper
def _mirrored_row(images: Any, base: int, width: int, first: int, row: Any) -> None:
    """Write the pixels first … first + width + 2 of a mirrored row."""
    size = width + 3
    start = min(max(-first, 0), size)
    stop = max(min(width - first, size), start)
    for j in range(start):
        write(row, j, f32(read(images, base + fold(first + j, width), 8)), 8)
    for j in range(start, stop):
        write(row, j, f32(read(images, base + first + j, 9)), 9)
    for j in range(stop, size):
        write(row, j, f32(read(images, base + fold(first + j, width), 10)), 10)


@contracted
def _combine_row(row: Any, weights: Any, width: int, out: Any, base: int, near: Any) -> None:
    """Filter one row in float32; mark the pixels near a whole number."""
    w0, _, w2, w3 = weights
    for x in range(width):
        middle = read(row, x + 1, 11)
        d0, d2, d3 = (
            read(row, x, 11) - middle,
            read(row, x + 2, 11) - middle,
            read(row, x + 3, 11) - middle,
        )
        value = middle + (w0 * d0 + w2 * d2 + w3 * d3)
        write(out, base + x, level32(value), 11)
        write(near, x, u8(doubt(value) & _uneven(d0, d2, d3)), 11)


@helper
def _settle_row(images: Any, base: int, width: int, shift: float, out: Any, near: Any) -> None:
    """Compute the marked pixels of a sheared row again, as Pillow does."""
    for eight in range(0, len(near), 8):
        if read_eight(near, eight, 12) == 0:
            continue
        for x in range(eight, eight + 8):
            if read(near, x, 12) != 0:
                write(out, base + x, _sheared_pixel(images, base, 1, width, x, shift), 12)


@helper
def _sheared_pixel(images: Any, base: int, step: int, length: int, at: int, shift: float) -> Any:
    """Return a pixel of a line (its pixels `step` apart) slid by `shift`, as Pillow does."""
    position = at + 0.5 + shift - 0.5
    pixel = np.int64(math.floor(position))
    value = cubic(
        float(read(images, base + step * fold(pixel - 1, length), 13)),
        float(read(images, base + step * fold(pixel, length), 13)),
        float(read(images, base + step * fold(pixel + 1, length), 13)),
        float(read(images, base + step * fold(pixel + 2, length), 13)),
        position - pixel,
    )
    return level64(value)


@compiled
def shear_y(images: Any, out: Any, slopes: Any, edges: Any) -> None:
    """Slide column x by `slope · (x + ½)`, counted from the left (edge 0) or the right (1)."""
    n, channels, height, width = images.shape
    shifts = np.empty(width, np.float64)
    starts = np.empty(width, np.int64)
    whole = np.empty(width, np.uint8)
    weights = np.empty(4 * width, np.float32)
    straight = np.empty((height + 3) * width, np.float32)
    near = np.zeros(whole_eights(width), np.uint8)
    for i in range(n):
        if slopes[i] == 0.0:
            copy_image(images, i, out)
            continue
        for x in range(width):
            shifts[x] = _shift(slopes[i], edges[i], x, width)
            start = math.floor(0.5 + shifts[x] - 0.5)
            fraction = 0.5 + shifts[x] - 0.5 - start
            whole[x] = fraction < _WHOLE or fraction > 1.0 - _WHOLE
            starts[x] = np.int64(start) - 1
            four = _weights(fraction)
            for tap in range(4):
                weights[tap * width + x] = four[tap]
        rows = _folded_rows(starts, height, width)
        for channel in range(channels):
            base = (i * channels + channel) * height * width
            _straighten(images, base, starts, rows, height, width, straight)
            for y in range(height):
                to = base + y * width
                _combine_columns(straight, y, weights, width, out, to, near, whole)
                _settle_columns(images, base, shifts, y, height, width, out, near)


@helper
def _folded_rows(starts: Any, height: int, width: int) -> Any:
    """Return where each mirrored row begins, from the first that a column needs to the last."""
    low = starts.min()
    rows = np.empty(starts.max() + height + 3 - low, np.int64)
    for j in range(len(rows)):
        rows[j] = fold(low + j, height) * width
    starts -= low
    return rows


@helper
def _straighten(
    images: Any, base: int, starts: Any, rows: Any, height: int, width: int, straight: Any
) -> None:
    """Write each column from its own first tap on: what a column needs stands side by side."""
    for y in range(height + 3):
        for x in range(width):
            row = read(rows, y + read(starts, x, 14), 14)
            write(straight, y * width + x, f32(read(images, base + row + x, 14)), 14)


@contracted
def _combine_columns(
    straight: Any, y: int, weights: Any, width: int, out: Any, base: int, near: Any, whole: Any
) -> None:
    """Filter one row's columns in float32; mark the pixels near a whole number."""
    at = y * width
    for x in range(width):
        middle = read(straight, at + width + x, 15)
        d0 = read(straight, at + x, 15) - middle
        d2 = read(straight, at + 2 * width + x, 15) - middle
        d3 = read(straight, at + 3 * width + x, 15) - middle
        value = read(weights, x, 15) * d0 + read(weights, 2 * width + x, 15) * d2
        value = middle + (value + read(weights, 3 * width + x, 15) * d3)
        write(out, base + x, level32(value), 15)
        unsure = u8(doubt(value) | read(whole, x, 15))
        write(near, x, u8(unsure & _uneven(d0, d2, d3)), 15)


@helper
def _settle_columns(
    images: Any, base: int, shifts: Any, y: int, height: int, width: int, out: Any, near: Any
) -> None:
    """Compute the marked pixels of a row of sheared columns again, as Pillow does."""
    for eight in range(0, len(near), 8):
        if read_eight(near, eight, 16) == 0:
            continue
        for x in range(eight, eight + 8):
            if read(near, x, 16) != 0:
                pixel = _sheared_pixel(images, base + x, width, height, y, shifts[x])
                write(out, base + y * width + x, pixel, 16)
