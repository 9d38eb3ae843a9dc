"""Geometric transforms in an ONNX graph: moved pixels, warps, and resized boxes.

Pillow's arithmetic with constant indices and weights: warps in float64 in its order of operations,
resizes in its fixed point, so that the bytes are those of the kernels. (ONNX's GridSample and
Resize interpolate differently.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.transforms.geometry import cells, mirrored, rotated_places, sheared_places
from relook.transforms.onnx.graph import Graph, Shape, Value
from relook.transforms.resampling import (
    BITS,
    Box,
    boxes_of,
    crop_boxes,
    goes_down_first,
    resize_taps,
    zoomed_box,
)
from relook.transforms.steps import AppliedStep, Floats

Whole = NDArray[np.int64]

_REACH = (-1, 0, 1, 2)


def rotate(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the warp of `rotate`."""
    values, draws = step.tensors()
    x, y = rotated_places(draws["sign"] * values, shape.height, shape.width)
    return _warp(graph, images, shape, x[0], y[0])


def shear_x(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the warp of `shear_x`."""
    values, draws = step.tensors()
    x = sheared_places(draws["sign"] * values, draws["edge"], shape.height, shape.width)
    return _warp(graph, images, shape, x[0])


def shear_y(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the warp of `shear_y`: `shear_x` between two transpositions."""
    return transposed(graph, shear_x(graph, transposed(graph, images), step, shape.transposed))


def _warp(graph: Graph, images: str, shape: Shape, x: Tensor, y: Tensor | None = None) -> str:
    """Append the bicubic warp (a = −1, truncated) to x, y `[h, w]`, continued by reflection.

    Without y each row is sampled by itself, from four neighbouring pixels.
    """
    columns, across = cells(x)
    rows, down = cells(torch.arange(shape.height)[:, None] + 0.5) if y is None else cells(y)
    rows = rows.expand(columns.shape)
    if not across.any() and not down.any():
        source = mirrored(rows, shape.height) * shape.width + mirrored(columns, shape.width)
        return move_pixels(graph, images, source.numpy(), shape)
    fraction = across.reshape(-1).numpy()
    reach = (0,) if y is None else _REACH
    taps = _taps(graph, images, shape, columns, torch.stack([rows + i for i in reach]))
    # One row after another, as four at once do not fit the cache.
    lines = [_along(graph, line, fraction) for line in _parts(graph, taps, 0, len(reach))]
    value = lines[0] if y is None else _cubic(graph, lines, down.reshape(-1).numpy())
    levels = graph.add("Clip", value, np.float64(0), np.float64(255))
    return as_images(graph, graph.cast(levels, np.uint8), shape)


def _taps(graph: Graph, images: str, shape: Shape, columns: Tensor, rows: Tensor) -> str:
    """Append the pixels to weigh, four across in each of the rows: `[row, 4, n · c, pixel]`."""
    low, high = int(columns.min()) - 1, int(columns.max()) + 2
    padded = mirrored(torch.arange(low, high + 1), shape.width)
    wide = take_columns(graph, images, padded.numpy(), shape.width)
    width = len(padded) - 3
    # With four neighbours in one place, they are copied at once.
    shifted = [
        graph.add("Slice", wide, np.array([j]), np.array([j + width]), np.array([3]))
        for j in range(4)
    ]
    fours = graph.add("Concat", *shifted, axis=0)
    index = (mirrored(rows, shape.height) * width + columns - 1 - low).flatten(1)
    taken = take_pixels(graph, fours, index.numpy(), Shape(4, shape.height, width))
    return graph.add("Reshape", taken, np.array([len(rows), 4, -1, index.shape[1]]))


def _along(graph: Graph, taps: str, fraction: Floats) -> str:
    """Append the cubic across of one row's taps: float64 `[1, 1, n · c, pixel]`."""
    parts = [graph.cast(tap, np.float32) for tap in _parts(graph, taps, 1, 4)]
    return _exact_cubic(graph, parts, fraction)


def _parts(graph: Graph, value: str, axis: int, count: int) -> list[str]:
    if count == 1:
        return [value]
    sizes = np.ones(count, np.int64)
    return graph.add_several("Split", value, sizes, outputs=count, axis=axis)


def _exact_cubic(graph: Graph, v: list[str], d: Floats) -> str:
    """Append the cubic of integers in float32, whose differences are exact in any order."""
    before, after = graph.add("Sub", v[0], v[1]), graph.add("Sub", v[2], v[3])
    both = graph.add("Add", before, after)
    terms = both, graph.add("Add", both, before), graph.add("Sub", v[2], v[0]), v[1]
    p4, p3, p2, p1 = (graph.cast(term, np.float64) for term in terms)
    value = graph.add("Sub", p3, graph.add("Mul", p4, d))  # p4 has the opposite sign
    value = graph.add("Add", graph.add("Mul", value, d), p2)
    return graph.add("Add", graph.add("Mul", value, d), p1)


def _cubic(graph: Graph, v: list[str], d: Floats) -> str:
    """Append the cubic of float64 values, in Pillow's order of operations."""
    p2 = graph.add("Sub", v[2], v[0])
    double = graph.add("Mul", graph.add("Sub", v[0], v[1]), np.float64(2))
    p3 = graph.add("Sub", graph.add("Add", double, v[2]), v[3])
    p4 = graph.add("Sub", graph.add("Sub", v[1], v[0]), v[2])
    value = graph.add("Add", p4, v[3])
    for term in (p3, p2, v[1]):
        value = graph.add("Add", graph.add("Mul", value, d), term)
    return value


def scale_crop(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the resize of `scale_crop` and the like, and its flip."""
    (box,) = crop_boxes(step, shape.width, shape.height)
    images = resize(graph, images, shape, box, (shape.height, shape.width))
    return flipped(graph, images, step, shape.width)


def flipped(graph: Graph, images: str, step: AppliedStep, width: int) -> str:
    """Append the mirror image if the step draws it."""
    if step.draws.get("flip") != 1:
        return images
    return take_columns(graph, images, np.arange(width)[::-1], width)


def zoom(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the resize of `zoom`."""
    values, draws = step.tensors()
    (box,) = boxes_of(zoomed_box, shape.width, shape.height, values, draws["x"], draws["y"])
    return resize(graph, images, shape, box, (shape.height, shape.width))


def resize(
    graph: Graph,
    images: str,
    shape: Shape,
    box: Box,
    size: tuple[int, int],
    interpolation: str = "bicubic",
) -> str:
    """Append the resize of a box of uint8 images to a size (height, width), as Pillow does it.

    Across and down, with bytes in between.
    """
    height, width = size
    rows = np.arange(box.top, box.top + box.height)
    columns = np.arange(box.left, box.left + box.width)
    if interpolation == "nearest":
        rows, columns = rows[_nearest(box.height, height)], columns[_nearest(box.width, width)]
    images = take_rows(graph, images, rows, shape.height)
    images = take_columns(graph, images, columns, shape.width)
    if interpolation == "nearest":
        return images
    down_first = goes_down_first(box.height, box.width, height, width)
    for down in (True, False) if down_first else (False, True):
        if down:
            images = _resize_rows(graph, images, box.height, height, interpolation)
        elif box.width != width:
            across = _resize_rows(graph, transposed(graph, images), box.width, width, interpolation)
            images = transposed(graph, across)
    return images


def _resize_rows(graph: Graph, images: str, length: int, size: int, interpolation: str) -> str:
    """Append the weighted sums of the old rows that make `size` new ones."""
    if length == size:
        return images
    first, weights = resize_taps(length, size, interpolation)
    whole = graph.cast(images, np.int32)
    total: Value = np.int32(1 << (BITS - 1))
    for tap, weight in enumerate(weights):
        # Past the box the weight is zero; the index only has to be valid.
        index = np.minimum(first + tap, length - 1)
        taken = graph.add("Gather", whole, index.astype(np.int32), axis=2)
        total = graph.add("Add", graph.add("Mul", taken, weight[:, None]), total)
    return levels_of(graph, total)


def levels_of(graph: Graph, total: Value) -> str:
    """Append the bytes of sums in fixed point (int32), which include the half for rounding."""
    # Div rounds negative sums up, not down; either is clipped to 0.
    level = graph.add("Div", total, np.int32(1 << BITS))
    return graph.cast(graph.add("Clip", level, np.int32(0), np.int32(255)), np.uint8)


def _nearest(length: int, size: int) -> NDArray[np.int64]:
    return ((np.arange(size) + 0.5) * (length / size)).astype(np.int64)


def move_pixels(graph: Graph, images: str, source: Whole, shape: Shape) -> str:
    """Append images whose pixels are taken from row · width + column `[h, w]`; −1 is black."""
    black = source < 0
    rows, columns = (np.where(black, 0, place) for place in np.divmod(source, shape.width))
    rows, columns = rows.max(axis=1), columns.max(axis=0)
    separable = rows[:, None] * shape.width + columns[None, :]
    if np.array_equal(separable[~black], source[~black]):
        moved = take_rows(graph, images, rows, shape.height)
        moved = take_columns(graph, moved, columns, shape.width)
    else:
        pixels = take_pixels(graph, images, np.where(black, 0, source).reshape(1, -1), shape)
        moved = as_images(graph, pixels, Shape(shape.channels, *source.shape))
    if not black.any():
        return moved
    return graph.add("Where", black, np.zeros((), np.uint8), moved)


def take_rows(graph: Graph, images: str, rows: NDArray[Any], height: int) -> str:
    """Append a selection of rows of `[n, c, h, w]`."""
    if _is_range(rows, height):
        return images
    return graph.add("Gather", images, rows.astype(np.int32), axis=2)


def take_columns(graph: Graph, images: str, columns: NDArray[Any], width: int) -> str:
    """Append a selection of columns: as rows of the transposed image, which are copied whole."""
    if _is_range(columns, width):
        return images
    return transposed(graph, take_rows(graph, transposed(graph, images), columns, width))


def take_pixels(graph: Graph, images: str, index: Whole, shape: Shape) -> str:
    """Append a selection of pixels, `index` `[taps, pixel]`: uint8 `[taps, n · c, pixel]`.

    All channels of all images are copied together, which is much faster than one by one.
    """
    rows = graph.add("Reshape", images, np.array([-1, shape.pixels]))
    pixels = graph.add("Transpose", rows, perm=[1, 0])
    taken = graph.add("Gather", pixels, index.astype(np.int32), axis=0)
    return graph.add("Transpose", taken, perm=[0, 2, 1])


def transposed(graph: Graph, images: str) -> str:
    """Append an exchange of height and width."""
    return graph.add("Transpose", images, perm=[0, 1, 3, 2])


def as_images(graph: Graph, values: str, shape: Shape) -> str:
    """Append a change of shape to `[n, c, h, w]`."""
    dimensions = [-1, shape.channels, shape.height, shape.width]
    return graph.add("Reshape", values, np.array(dimensions))


def _is_range(index: NDArray[Any], length: int) -> bool:
    return len(index) == length and np.array_equal(index, np.arange(length))
