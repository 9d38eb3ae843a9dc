"""Pixels taken from elsewhere in the image, in an ONNX graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.transforms.onnx.graph import Graph, Shape

Whole = NDArray[np.int64]


def move_pixels(graph: Graph, images: str, source: Whole, shape: Shape) -> str:
    """Append what takes each pixel from row · width + column `[h, w]` of images; −1 is black."""
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
    """Append a choice of rows of `[n, c, h, w]`."""
    if _is_range(rows, height):
        return images
    return graph.add("Gather", images, rows.astype(np.int32), axis=2)


def take_columns(graph: Graph, images: str, columns: NDArray[Any], width: int) -> str:
    """Append a choice of columns: as rows of the turned image, which are copied whole."""
    if _is_range(columns, width):
        return images
    return turned(graph, take_rows(graph, turned(graph, images), columns, width))


def take_pixels(graph: Graph, images: str, index: Whole, shape: Shape) -> str:
    """Append a choice of pixels, `index` `[taps, pixel]`: uint8 `[taps, n · c, pixel]`.

    All channels of all images are copied together, which is much faster than one by one.
    """
    rows = graph.add("Reshape", images, np.array([-1, shape.pixels]))
    pixels = graph.add("Transpose", rows, perm=[1, 0])
    taken = graph.add("Gather", pixels, index.astype(np.int32), axis=0)
    return graph.add("Transpose", taken, perm=[0, 2, 1])


def turned(graph: Graph, images: str) -> str:
    """Append an exchange of height and width."""
    return graph.add("Transpose", images, perm=[0, 1, 3, 2])


def as_images(graph: Graph, values: str, shape: Shape) -> str:
    """Append a change of shape to `[n, c, h, w]`."""
    dimensions = [-1, shape.channels, shape.height, shape.width]
    return graph.add("Reshape", values, np.array(dimensions))


def _is_range(index: NDArray[Any], length: int) -> bool:
    return len(index) == length and np.array_equal(index, np.arange(length))
