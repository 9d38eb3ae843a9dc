"""Warps in an ONNX graph: Pillow's arithmetic with constant indices and weights.

Float64 in Pillow's order of operations, so that the bytes are the kernels' own. (ONNX's GridSample
has another kernel.)
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.transforms.geometry import cells, mirrored, rotated_places, sheared_places
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.onnx.pixels import as_images, move_pixels, take_columns, take_pixels, turned
from relook.transforms.steps import AppliedStep

Floats = NDArray[np.float64]

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
    """Append the warp of `shear_y`: of the turned image, between two turns."""
    return turned(graph, shear_x(graph, turned(graph, images), step, shape.turned))


def _warp(graph: Graph, images: str, shape: Shape, x: Tensor, y: Tensor | None = None) -> str:
    """Append the bicubic warp (a = −1, truncated) in a mirrored surround, sampled at x, y `[h, w]`.

    Without y the rows are whole, and only four neighbouring pixels are weighted.
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
    # One row after another: four at once do not fit the cache.
    lines = [_along(graph, line, fraction) for line in _parts(graph, taps, 0, len(reach))]
    value = lines[0] if y is None else _cubic(graph, lines, down.reshape(-1).numpy())
    levels = graph.add("Clip", value, np.float64(0), np.float64(255))
    return as_images(graph, graph.cast(levels, np.uint8), shape)


def _taps(graph: Graph, images: str, shape: Shape, columns: Tensor, rows: Tensor) -> str:
    """Append the pixels to weigh, four across in each of the rows: `[row, 4, n · c, pixel]`."""
    low, high = int(columns.min()) - 1, int(columns.max()) + 2
    surround = mirrored(torch.arange(low, high + 1), shape.width)
    wide = take_columns(graph, images, surround.numpy(), shape.width)
    width = len(surround) - 3
    # Four neighbours in one place are copied at once.
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
    parts = [graph.cast(one, np.float32) for one in _parts(graph, taps, 1, 4)]
    return _whole_cubic(graph, parts, fraction)


def _parts(graph: Graph, value: str, axis: int, count: int) -> list[str]:
    if count == 1:
        return [value]
    sizes = np.ones(count, np.int64)
    return graph.add_several("Split", value, sizes, outputs=count, axis=axis)


def _whole_cubic(graph: Graph, v: list[str], d: Floats) -> str:
    """Append the cubic of whole numbers (float32), whose differences are exact in any order."""
    before, after = graph.add("Sub", v[0], v[1]), graph.add("Sub", v[2], v[3])
    both = graph.add("Add", before, after)
    terms = both, graph.add("Add", both, before), graph.add("Sub", v[2], v[0]), v[1]
    p4, p3, p2, p1 = (graph.cast(one, np.float64) for one in terms)
    value = graph.add("Sub", p3, graph.add("Mul", p4, d))  # p4 is taken with the other sign
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
