"""Cutting a box and resizing it in an ONNX graph, in Pillow's fixed point.

(ONNX's Resize has other kernels.)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from relook.transforms.onnx.graph import Graph, Shape, Value
from relook.transforms.onnx.pixels import take_columns, take_rows, turned
from relook.transforms.resampling import (
    BITS,
    Box,
    boxes_of,
    crop_boxes,
    goes_down_first,
    resize_taps,
    zoomed_box,
)
from relook.transforms.steps import AppliedStep


def scale_crop(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the resize of `scale_crop` and its kin."""
    (box,) = crop_boxes(step, shape.width, shape.height)
    images = resize(graph, images, shape, box, (shape.height, shape.width))
    if step.draws.get("flip") == 1:
        return take_columns(graph, images, np.arange(shape.width)[::-1], shape.width)
    return images


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
    """Append what brings a box of uint8 images to another size (height, width), as Pillow does.

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
            images = _weigh(graph, images, box.height, height, interpolation)
        elif box.width != width:
            across = _weigh(graph, turned(graph, images), box.width, width, interpolation)
            images = turned(graph, across)
    return images


def _weigh(graph: Graph, images: str, length: int, size: int, interpolation: str) -> str:
    """Append the weighted sums of the old rows that make `size` new ones."""
    if length == size:
        return images
    first, weights = resize_taps(length, size, interpolation)
    whole = graph.cast(images, np.int32)
    total: Value = np.int32(1 << (BITS - 1))
    for tap, weight in enumerate(weights):
        # Past the box the weight is zero; the index only has to be a valid one.
        index = np.minimum(first + tap, length - 1)
        taken = graph.add("Gather", whole, index.astype(np.int32), axis=2)
        total = graph.add("Add", graph.add("Mul", taken, weight[:, None]), total)
    return levels_of(graph, total)


def levels_of(graph: Graph, total: Value) -> str:
    """Append the bytes of sums in fixed point, int32, to which a half has been added."""
    # Rounds negative sums up, not down; both are cut off at 0.
    level = graph.add("Div", total, np.int32(1 << BITS))
    return graph.cast(graph.add("Clip", level, np.int32(0), np.int32(255)), np.uint8)


def _nearest(length: int, size: int) -> NDArray[np.int64]:
    return ((np.arange(size) + 0.5) * (length / size)).astype(np.int64)
