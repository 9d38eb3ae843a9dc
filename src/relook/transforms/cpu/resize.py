"""Cutting a box and resizing it: Pillow's resize(BICUBIC) in its own fixed point."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relook.transforms.cpu.memory import compiled, helper, i32, read, u8, write
from relook.transforms.cpu.turn import transpose
from relook.transforms.cpu.x86 import LANES, weigh_rows

_BITS = 22
_HALF = 1 << (_BITS - 1)


@compiled
def resize_boxes(images: Any, out: Any, boxes: Any, flips: Any) -> None:
    """Enlarge a box of each image (left, width, top, height) to the whole; mirror where flip.

    Across first, then down, as Pillow does; across is down between two transpositions.
    """
    n, channels, height, width = images.shape
    columns, rows = np.empty(width, np.int64), np.empty(height, np.int64)
    across, across_digits = np.empty(4 * width, np.int32), np.empty(3 * width, np.int32)
    down, down_digits = np.empty(4 * height, np.int32), np.empty(3 * height, np.int32)
    box, turned = np.empty(height * width, np.uint8), np.empty(height * width, np.uint8)
    for i in range(n):
        left, box_width, top, box_height = boxes[i]
        if i == 0 or _differ(boxes, flips, i):
            _taps(box_width, width, columns, across, flips[i] == 1.0)
            _taps(box_height, height, rows, down, False)
            _split(across, across_digits)
            _split(down, down_digits)
        for channel in range(channels):
            base = (i * channels + channel) * height * width
            start = base + top * width + left
            transpose(images, start, box_height, box_width, width, box, 0)
            _resize(box, box_width, box_height, columns, across, across_digits, turned, 0)
            transpose(turned, 0, width, box_height, box_height, box, 0)
            _resize(box, box_height, width, rows, down, down_digits, out, base)


@helper
def _differ(boxes: Any, flips: Any, i: int) -> bool:
    """Return whether image i needs other weights than the one before."""
    same = flips[i] == flips[i - 1]
    return not (same and boxes[i, 1] == boxes[i - 1, 1] and boxes[i, 3] == boxes[i - 1, 3])


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
def _split(weights: Any, digits: Any) -> None:
    """Write weights `[4, size]` as three digits, −128 … 127, to the base 256: `[3, size]`.

    A word holds the four weights' digits as its bytes; the least ones come first.
    """
    size = len(digits) // 3
    for x in range(size):
        least, middle, most = i32(0), i32(0), i32(0)
        for tap in range(4):
            # With half a digit added at each place, the carries are right and the rest is −128.
            digit = i32(i32(read(weights, tap * size + x, 24) + i32(0x808080)) ^ i32(0x808080))
            least |= i32(i32(digit & 255) << (8 * tap))
            middle |= i32(i32(i32(digit >> 8) & 255) << (8 * tap))
            most |= i32(i32(i32(digit >> 16) & 255) << (8 * tap))
        write(digits, x, least, 24)
        write(digits, size + x, middle, 24)
        write(digits, 2 * size + x, most, 24)


@helper
def _resize(
    images: Any,
    count: int,
    length: int,
    first: Any,
    weights: Any,
    digits: Any,
    out: Any,
    to: int,
) -> None:
    """Write rows of that length, each a weighted sum of four among `count` rows."""
    size = len(first)
    rows = np.empty(4, np.int64)
    for y in range(size):
        for tap in range(4):
            # Past the last row the weight is zero; the row only has to be a valid one.
            rows[tap] = min(first[y] + tap, count - 1) * length
        start = to + y * length
        if length < LANES:
            _weigh_few(images, rows, length, weights, y, size, out, start)
            continue
        for x in range(0, length, LANES):
            # The last ones begin early enough to end with the row.
            left = min(x, length - LANES)
            weigh_rows(
                images, rows, left, weights, digits, y, size, _HALF, _BITS, out, start + left
            )


@helper
def _weigh_few(
    images: Any, rows: Any, length: int, weights: Any, y: int, size: int, out: Any, to: int
) -> None:
    """Write one row without `weigh_rows`."""
    r0, r1, r2, r3 = rows[0], rows[1], rows[2], rows[3]
    w0, w1 = weights[y], weights[size + y]
    w2, w3 = weights[2 * size + y], weights[3 * size + y]
    for x in range(length):
        total = i32(_HALF + i32(w0 * i32(read(images, r0 + x, 23))))
        total = i32(total + i32(w1 * i32(read(images, r1 + x, 23))))
        total = i32(total + i32(w2 * i32(read(images, r2 + x, 23))))
        total = i32(total + i32(w3 * i32(read(images, r3 + x, 23))))
        write(out, to + x, _level(total), 23)


@helper
def _level(total: Any) -> Any:
    """Return the whole part of a fixed-point number, clamped to 0 … 255."""
    return u8(min(max(i32(total >> _BITS), i32(0)), i32(255)))
