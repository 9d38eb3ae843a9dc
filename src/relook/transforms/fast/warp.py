"""Rotation: bicubic (a = −1) in a mirrored surround, with the bytes of Pillow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.fast.cubic import cubic, doubt, fold, whole_eights
from relook.transforms.fast.memory import (
    byte,
    compiled,
    contracted,
    copy_image,
    f32,
    helper,
    i32,
    level32,
    level64,
    read,
    read_eight,
    read_four,
    u8,
    write,
)


@compiled
def rotate(images: Any, out: Any, matrices: Any) -> None:
    """Sample each image at `a·x + b·y + c`, `d·x + e·y + f`; matrices float64 `[n, 6]`."""
    n, channels, height, width = images.shape
    at = np.empty(width, np.int32)
    weights = np.empty(8 * width, np.float32)
    near = np.zeros(whole_eights(width), np.uint8)
    padded = np.empty(0, np.uint8)
    for i in range(n):
        m = matrices[i]
        if m[0] == 1.0 and m[1] == 0.0 and m[2] == 0.0 and m[3] == 0.0 and m[5] == 0.0:
            copy_image(images, i, out)
            continue
        left, right = _margins(m[0], m[1], m[2], width, height, width)
        top, bottom = _margins(m[3], m[4], m[5], width, height, height)
        wide, plane = width + left + right, (width + left + right) * (height + top + bottom)
        if channels * plane > len(padded):
            padded = np.empty(channels * plane, np.uint8)
        _surround(images, i, left, top, wide, plane, padded)
        for y in range(height):
            _places(m, y, width, left, top, wide, at, weights)
            for channel in range(channels):
                base = ((i * channels + channel) * height + y) * width
                _combine(padded, channel * plane, wide, at, weights, width, out, base, near)
                _settle(padded, channel * plane, wide, at, m, y, out, base, near)


@helper
def _margins(a: float, b: float, c: float, width: int, height: int, length: int) -> Any:
    """Return how far the taps along one axis reach beyond the image, before and after it."""
    low = min(0.5 * a, (width - 0.5) * a) + min(0.5 * b, (height - 0.5) * b) + c - 0.5
    high = max(0.5 * a, (width - 0.5) * a) + max(0.5 * b, (height - 0.5) * b) + c - 0.5
    before = 2 - np.int64(math.floor(low))
    after = np.int64(math.floor(high)) + 4 - length
    return max(before, 0), max(after, 0)


@helper
def _surround(images: Any, i: int, left: int, top: int, wide: int, plane: int, padded: Any) -> None:
    """Write the image's planes amid their mirror images, rows `wide` long."""
    _, channels, height, width = images.shape
    columns = np.empty(wide, np.int64)
    for x in range(wide):
        columns[x] = fold(x - left, width)
    for channel in range(channels):
        first = channel * plane
        for y in range(height):
            base = ((i * channels + channel) * height + y) * width
            to = first + (y + top) * wide
            for x in range(left):
                write(padded, to + x, read(images, base + columns[x], 1), 1)
            for x in range(width):
                write(padded, to + left + x, read(images, base + x, 2), 2)
            for x in range(left + width, wide):
                write(padded, to + x, read(images, base + columns[x], 3), 3)
        for y in range(plane // wide):
            if y < top or y >= top + height:
                _copy_row(
                    padded, first + (fold(y - top, height) + top) * wide, first + y * wide, wide
                )


@helper
def _copy_row(padded: Any, source: int, to: int, wide: int) -> None:
    for x in range(wide):
        write(padded, to + x, read(padded, source + x, 18), 18)


@helper
def _places(
    m: Any, y: int, width: int, left: int, top: int, wide: int, at: Any, weights: Any
) -> None:
    """Write each pixel's first tap and its eight weights, four across and four down."""
    a, b, c, d, e, f = m[0], m[1], m[2], m[3], m[4], m[5]
    for x in range(width):
        across, down = _along(a, b, c, x, y), _along(d, e, f, x, y)
        column, row = math.floor(across), math.floor(down)
        place = (np.int64(row) - 1 + top) * wide + np.int64(column) - 1 + left
        write(at, x, i32(place), 4)
        _write_weights(weights, x, width, f32(across - column))
        _write_weights(weights, 4 * width + x, width, f32(down - row))


@helper
def _write_weights(weights: Any, at: int, width: int, d: Any) -> None:
    """Write the four taps' weights for the fraction d, `width` apart."""
    square = d * d
    write(weights, at, d * (f32(2) * d - f32(1) - square), 4)
    write(weights, at + width, f32(1) + square * (d - f32(2)), 4)
    write(weights, at + 2 * width, d * (f32(1) + d - square), 4)
    write(weights, at + 3 * width, square * (d - f32(1)), 4)


@helper
def _along(a: float, b: float, c: float, x: int, y: int) -> float:
    """Return where pixel x, y comes from along one axis, counted from the first centre."""
    return a * (x + 0.5) + b * (y + 0.5) + c - 0.5


@contracted
def _combine(
    padded: Any,
    plane: int,
    wide: int,
    at: Any,
    weights: Any,
    width: int,
    out: Any,
    base: int,
    near: Any,
) -> None:
    """Write one row in float32; mark the pixels near a whole number."""
    for x in range(width):
        w0, w1 = read(weights, x, 5), read(weights, width + x, 5)
        w2, w3 = read(weights, 2 * width + x, 5), read(weights, 3 * width + x, 5)
        place = plane + np.int64(read(at, x, 5))
        taps = read_four(padded, place, 5)
        first, uneven = taps, (taps ^ (taps >> 8)) & 0xFFFFFF
        a = w0 * byte(taps, 0) + w1 * byte(taps, 1) + w2 * byte(taps, 2) + w3 * byte(taps, 3)
        taps = read_four(padded, place + wide, 5)
        uneven |= taps ^ first
        b = w0 * byte(taps, 0) + w1 * byte(taps, 1) + w2 * byte(taps, 2) + w3 * byte(taps, 3)
        taps = read_four(padded, place + 2 * wide, 5)
        uneven |= taps ^ first
        c = w0 * byte(taps, 0) + w1 * byte(taps, 1) + w2 * byte(taps, 2) + w3 * byte(taps, 3)
        taps = read_four(padded, place + 3 * wide, 5)
        uneven |= taps ^ first
        d = w0 * byte(taps, 0) + w1 * byte(taps, 1) + w2 * byte(taps, 2) + w3 * byte(taps, 3)
        value = read(weights, 4 * width + x, 5) * a + read(weights, 5 * width + x, 5) * b
        value += read(weights, 6 * width + x, 5) * c + read(weights, 7 * width + x, 5) * d
        # Taps that are all alike give their own level, which the weights' sum may miss.
        value = value if uneven != 0 else byte(first, 0)
        write(out, base + x, level32(value), 5)
        write(near, x, u8(doubt(value) & u8(uneven != 0)), 5)


@helper
def _settle(
    padded: Any,
    plane: int,
    wide: int,
    at: Any,
    m: Any,
    y: int,
    out: Any,
    base: int,
    near: Any,
) -> None:
    """Compute the marked pixels of a row again, as Pillow does."""
    for eight in range(0, len(near), 8):
        if read_eight(near, eight, 6) == 0:
            continue
        for x in range(eight, eight + 8):
            if read(near, x, 6) != 0:
                place = plane + np.int64(read(at, x, 6))
                across, down = _along(m[0], m[1], m[2], x, y), _along(m[3], m[4], m[5], x, y)
                dx, dy = across - math.floor(across), down - math.floor(down)
                a = _row_cubic(padded, place, dx)
                b = _row_cubic(padded, place + wide, dx)
                c = _row_cubic(padded, place + 2 * wide, dx)
                d = _row_cubic(padded, place + 3 * wide, dx)
                write(out, base + x, level64(cubic(a, b, c, d, dy)), 6)


@helper
def _row_cubic(padded: Any, at: int, d: float) -> Any:
    return cubic(
        float(read(padded, at, 7)),
        float(read(padded, at + 1, 7)),
        float(read(padded, at + 2, 7)),
        float(read(padded, at + 3, 7)),
        d,
    )
