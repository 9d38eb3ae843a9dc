"""Transforms that depend on an image's content or on neighbouring pixels, in an ONNX graph.

Pillow's arithmetic, as in the table's kernels: float32 blends and integer histograms.
"""

from __future__ import annotations

import numpy as np

from relook.transforms.color import cut_off, factors
from relook.transforms.onnx.geometry import as_images
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.steps import AppliedStep

_LEVELS = np.arange(256)
# Pillow's weights of red, green and blue, in 65,536ths. All sums stay below 2^24, so that
# float32 holds them exactly.
_LUMA = np.array([19595, 38470, 7471], np.float32).reshape(1, 3, 1, 1)
# Means are at least 1/26 away from a half, far more than float32's rounding error.
_SMOOTH_MEAN, _SMOOTH_CENTRE = np.float32(9 / 13), np.float32(4 / 13)


def autocontrast(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the stretch of each channel to the full range."""
    levels, counts = _histogram(graph, images, shape)
    values, _ = step.tensors()
    cut = np.int32(min(cut_off(values, shape.pixels).item(), shape.pixels + 1))
    low = _fallen(graph, graph.add("CumSum", counts, np.int32(1)), cut)
    above = _fallen(graph, graph.add("CumSum", counts, np.int32(1), reverse=1), cut)
    high = graph.add("Sub", np.int32(255), above)
    span = graph.add("Max", graph.add("Sub", high, low), np.int32(1))
    scale = graph.add("Div", np.float64(255), graph.cast(span, np.float64))
    shift = graph.add("Mul", graph.cast(graph.add("Neg", low), np.float64), scale)
    stretched = graph.add("Mul", _LEVELS[None].astype(np.float64), scale)
    stretched = graph.add("Add", stretched, shift)
    stretched = graph.add("Clip", stretched, np.float64(0), np.float64(255))
    changed = graph.add("Greater", high, low)
    return _look_up(graph, levels, changed, graph.cast(stretched, np.int32), shape)


def equalize(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the even spreading of each channel's grey levels."""
    levels, counts = _histogram(graph, images, shape)
    from_above = graph.add("CumSum", counts, np.int32(1), reverse=1)
    brightest = graph.add("Sub", np.int32(255), _fallen(graph, from_above, np.int32(0)))
    most = graph.add("GatherElements", counts, brightest, axis=1)
    width = graph.add("Div", graph.add("Sub", np.int32(shape.pixels), most), np.int32(255))
    darker = graph.add("CumSum", counts, np.int32(1), exclusive=1)
    table = graph.add("Add", graph.add("Div", width, np.int32(2)), darker)
    table = graph.add("Div", table, graph.add("Max", width, np.int32(1)))
    table = graph.add("Min", table, np.int32(255))
    return _look_up(graph, levels, graph.add("Greater", width, np.int32(0)), table, shape)


def contrast(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the blend with the mean grey level."""
    values = graph.cast(images, np.float32)
    grey = graph.cast(_luma(graph, values, shape), np.float64)
    total = graph.add("ReduceSum", grey, np.array([1, 2, 3]), keepdims=1)
    mean = graph.add("Div", total, np.float64(shape.pixels))
    mean = graph.add("Floor", graph.add("Add", mean, np.float64(0.5)))
    return _blend(graph, graph.cast(mean, np.float32), values, step)


def color(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the blend with the grey image; grey images stay as they are."""
    if shape.channels == 1:
        return images
    values = graph.cast(images, np.float32)
    return _blend(graph, _luma(graph, values, shape), values, step)


def sharpness(graph: Graph, images: str, step: AppliedStep, shape: Shape) -> str:
    """Append the blend with the smoothed image; the outermost pixels stay."""
    values = graph.cast(images, np.float32)
    mean = graph.add("AveragePool", values, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    centre = graph.add("Mul", values, _SMOOTH_CENTRE)
    smooth = graph.add("Add", graph.add("Mul", mean, _SMOOTH_MEAN), centre)
    smooth = graph.add("Floor", graph.add("Add", smooth, np.float32(0.5)))
    edge = np.ones((shape.height, shape.width), bool)
    edge[1:-1, 1:-1] = False
    return _blend(graph, graph.add("Where", edge, values, smooth), values, step)


def _histogram(graph: Graph, images: str, shape: Shape) -> tuple[str, str]:
    """Append the levels `[n · c, pixel]` and the counts of each, int32 `[n · c, 256]`."""
    rows = graph.add("Reshape", images, np.array([-1, shape.pixels]))
    levels = graph.cast(rows, np.int32)
    size = graph.add("Shape", levels)
    channels = graph.add("Slice", size, np.array([0]), np.array([1]))
    table = graph.add("Concat", channels, np.array([256]), axis=0)
    empty = graph.add("Expand", np.int32(0), table)
    ones = graph.add("Expand", np.int32(1), size)
    counts = graph.add("ScatterElements", empty, levels, ones, axis=1, reduction="add")
    return levels, counts


def _fallen(graph: Graph, sums: str, cut: np.int32) -> str:
    """Append the number of levels whose running counts are not above the cut: `[n · c, 1]`."""
    fallen = graph.cast(graph.add("LessOrEqual", sums, cut), np.int32)
    return graph.add("ReduceSum", fallen, np.array([1]), keepdims=1)


def _look_up(graph: Graph, levels: str, changed: str, table: str, shape: Shape) -> str:
    """Append the look-up in each channel's table; channels that are not `changed` stay."""
    table = graph.add("Where", changed, table, _LEVELS[None].astype(np.int32))
    found = graph.add("GatherElements", graph.cast(table, np.uint8), levels, axis=1)
    return as_images(graph, found, shape)


def _luma(graph: Graph, values: str, shape: Shape) -> str:
    """Append Pillow's grey of float32 images: `[n, 1, h, w]`."""
    if shape.channels == 1:
        return values
    weighted = graph.add("Mul", values, _LUMA)
    total = graph.add("ReduceSum", weighted, np.array([1]), keepdims=1)
    total = graph.add("Add", total, np.float32(0x8000))
    return graph.add("Floor", graph.add("Mul", total, np.float32(2**-16)))


def _blend(graph: Graph, degenerate: str, values: str, step: AppliedStep) -> str:
    """Append `degenerate + factor · (values − degenerate)` as bytes, in float32."""
    factor = np.float32(factors(step.tensors()[0]).item())
    difference = graph.add("Sub", values, degenerate)
    blended = graph.add("Mul", difference, factor)
    blended = graph.add("Add", blended, degenerate)
    limits = (np.float32(0), np.float32(255))
    return graph.cast(graph.add("Clip", blended, *limits), np.uint8)
