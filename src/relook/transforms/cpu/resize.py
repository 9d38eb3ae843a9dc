"""Cuts out a box and resizes it: Pillow's resize(BICUBIC) in its fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.transforms.apply import Operation, Shape
from relook.transforms.cpu.instructions import compiled, helper, i32, read, transpose, u8, write
from relook.transforms.resampling import (
    BITS,
    Box,
    boxes_of,
    crop_boxes,
    resize_taps,
    zoomed_box,
)
from relook.transforms.steps import AppliedStep

_HALF = 1 << (BITS - 1)
# Per new pixel: a cubic that does not shrink reaches two pixels either way.
_TAPS = 4


def scale_crop(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `scale_crop` and the like."""
    return _resize(crop_boxes(step, shape[3], shape[2]), shape, step.draws.get("flip"))


def zoom(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `zoom`."""
    values, draws = step.tensors()
    boxes = boxes_of(zoomed_box, shape[3], shape[2], values, draws["x"], draws["y"])
    return _resize(boxes, shape)


def _resize(boxes: Sequence[Box], shape: Shape, flip: NDArray[Any] | None = None) -> Operation:
    spans = np.array([(box.left, box.width, box.top, box.height) for box in boxes], np.int64)
    flips = np.zeros(len(boxes), np.int64) if flip is None else (flip == 1).astype(np.int64)
    across = _taps({box.width for box in boxes}, shape[3])
    down = _taps({box.height for box in boxes}, shape[2])
    return Operation(_resize_boxes, (spans, flips), (*across, *down))


def _taps(lengths: set[int], size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return first taps `[size + 1, size]` and weights `[size + 1, 4, size]` by the box's length.

    Only entries of the given lengths are sure to be filled.
    """
    firsts, weights, known = _tap_arrays(size)
    for length in lengths - known:
        firsts[length], found = resize_taps(length, size)
        weights[length, : len(found)] = found
        known.add(length)
    return firsts, weights


@lru_cache(maxsize=8)
def _tap_arrays(size: int) -> tuple[NDArray[np.int64], NDArray[np.int32], set[int]]:
    """Return arrays for a size's taps, whose pages take memory only once they are written."""
    firsts = np.zeros((size + 1, size), np.int64)
    return firsts, np.zeros((size + 1, _TAPS, size), np.int32), set()


@compiled
def _resize_boxes(
    images: Any,
    out: Any,
    boxes: Any,
    flips: Any,
    columns: Any,
    across: Any,
    rows: Any,
    down: Any,
) -> None:
    """Enlarge a box (left, width, top, height) of each image to its size; mirror if flip is 1.

    Across first, then down, as Pillow does; across is down between two transpositions.
    """
    n, channels, height, width = images.shape
    box, turned = np.empty(height * width, np.uint8), np.empty(height * width, np.uint8)
    for i in range(n):
        left, box_width, top, box_height = boxes[i]
        column, row = columns[box_width], rows[box_height]
        for channel in range(channels):
            base = (i * channels + channel) * height * width
            start = base + top * width + left
            transpose(images, start, box_height, box_width, width, box, 0)
            _weigh(box, box_width, box_height, column, across[box_width], turned, 0, flips[i] == 1)
            transpose(turned, 0, width, box_height, box_height, box, 0)
            _weigh(box, box_height, width, row, down[box_height], out, base, False)


@helper
def _weigh(
    images: Any,
    count: int,
    length: int,
    first: Any,
    weights: Any,
    out: Any,
    to: int,
    upwards: bool,
) -> None:
    """Write rows of `length` pixels, each a weighted sum of four of `count` rows."""
    size, last = len(first), count - 1
    for y in range(size):
        # Past the last row the weight is zero; the index only has to be valid.
        start = to + (size - 1 - y if upwards else y) * length
        r0, r1 = min(first[y], last) * length, min(first[y] + 1, last) * length
        r2, r3 = min(first[y] + 2, last) * length, min(first[y] + 3, last) * length
        w0, w1, w2, w3 = weights[0, y], weights[1, y], weights[2, y], weights[3, y]
        for x in range(length):
            total = i32(_HALF + i32(w0 * i32(read(images, r0 + x, 23))))
            total = i32(total + i32(w1 * i32(read(images, r1 + x, 23))))
            total = i32(total + i32(w2 * i32(read(images, r2 + x, 23))))
            total = i32(total + i32(w3 * i32(read(images, r3 + x, 23))))
            level = min(max(i32(total >> BITS), i32(0)), i32(255))
            write(out, start + x, u8(level), 23)
