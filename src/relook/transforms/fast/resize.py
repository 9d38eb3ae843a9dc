"""Cutting a box and resizing it: Pillow's resize(BICUBIC) in its own fixed point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.fast.memory import (
    compiled,
    helper,
    i32,
    read,
    read_four,
    u8,
    whole_byte,
    write,
)

_BITS = 22
_HALF = 1 << (_BITS - 1)


@compiled
def resize_boxes(images: Any, out: Any, boxes: Any, flips: Any) -> None:
    """Enlarge a box of each image (left, width, top, height) to the whole; mirror where flip."""
    n, channels, height, width = images.shape
    columns, across = np.empty(width, np.int32), np.empty(4 * width, np.int32)
    rows, down = np.empty(height, np.int32), np.empty(4 * height, np.int32)
    row = np.zeros(width + 4, np.uint8)
    wide = np.empty(height * width, np.uint8)
    for i in range(n):
        left, box_width, top, box_height = boxes[i]
        _taps(box_width, width, columns, across, flips[i] == 1.0)
        _taps(box_height, height, rows, down, False)
        for channel in range(channels):
            base = (i * channels + channel) * height * width
            for y in range(box_height):
                start = base + (top + y) * width + left
                for x in range(box_width):
                    write(row, x, read(images, start + x, 21), 21)
                _across(row, columns, across, width, wide, y * width)
            for y in range(height):
                _down(wide, rows[y], box_height, down, y, height, width, out, base + y * width)


@helper
def _taps(length: int, size: int, first: Any, weights: Any, mirrored: bool) -> None:
    """Write each output pixel's first tap and four weights `[4, size]`; a box never shrinks."""
    scale = length / size
    four = np.empty(4, np.float64)
    for x in range(size):
        centre = (x + 0.5) * scale
        start = max(int(centre - 2.0 + 0.5), 0)
        end = min(int(centre + 2.0 + 0.5), length)
        total = 0.0
        for tap in range(4):
            inside = start + tap < end
            four[tap] = _kernel(start + tap - centre + 0.5) if inside else 0.0
            total = total + four[tap]
        to = size - 1 - x if mirrored else x
        first[to] = start
        for tap in range(4):
            scaled = four[tap] / total * (1 << _BITS)
            weights[tap * size + to] = np.int64(scaled + (-0.5 if scaled < 0 else 0.5))


@helper
def _kernel(distance: float) -> float:
    """Return the cubic kernel with a = −0.5."""
    t = math.fabs(distance)
    if t < 1.0:
        return (1.5 * t - 2.5) * t * t + 1.0
    if t < 2.0:
        return (((t - 5.0) * t + 8.0) * t - 4.0) * -0.5
    return 0.0


@helper
def _across(row: Any, first: Any, weights: Any, width: int, out: Any, base: int) -> None:
    """Resize one row."""
    for x in range(width):
        taps = read_four(row, np.int64(read(first, x, 22)), 22)
        total = i32(_HALF + i32(read(weights, x, 22) * whole_byte(taps, 0)))
        total = i32(total + i32(read(weights, width + x, 22) * whole_byte(taps, 1)))
        total = i32(total + i32(read(weights, 2 * width + x, 22) * whole_byte(taps, 2)))
        total = i32(total + i32(read(weights, 3 * width + x, 22) * whole_byte(taps, 3)))
        write(out, base + x, _level(total), 22)


@helper
def _down(
    wide: Any,
    first: int,
    rows: int,
    weights: Any,
    y: int,
    height: int,
    width: int,
    out: Any,
    base: int,
) -> None:
    """Write one row as a weighted sum of four."""
    # Past the box the weight is zero; the row only has to be a valid one.
    r0 = min(first, rows - 1) * width
    r1 = min(first + 1, rows - 1) * width
    r2 = min(first + 2, rows - 1) * width
    r3 = min(first + 3, rows - 1) * width
    w0, w1 = weights[y], weights[height + y]
    w2, w3 = weights[2 * height + y], weights[3 * height + y]
    for x in range(width):
        total = i32(_HALF + i32(w0 * i32(read(wide, r0 + x, 23))))
        total = i32(total + i32(w1 * i32(read(wide, r1 + x, 23))))
        total = i32(total + i32(w2 * i32(read(wide, r2 + x, 23))))
        total = i32(total + i32(w3 * i32(read(wide, r3 + x, 23))))
        write(out, base + x, _level(total), 23)


@helper
def _level(total: Any) -> Any:
    """Return the whole part of a fixed-point number, clamped to 0 … 255."""
    return u8(min(max(i32(total >> _BITS), i32(0)), i32(255)))
