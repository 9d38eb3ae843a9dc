"""Steps that resample, in an ONNX graph: Pillow's arithmetic with constant indices and weights.

Warps are float64 in Pillow's order of operations and resizes are in its fixed point, so that
the bytes are relook's own. (ONNX's GridSample and Resize have other kernels.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from relook.deploy.onnx.moves import (
    PixelMap,
    Shape,
    Whole,
    as_images,
    take_columns,
    take_pixels,
    take_rows,
    turned,
)
from relook.deploy.onnx.writer import Graph, Value
from relook.policy import Step
from relook.transforms.geometry import Box, placed_box, rotation, scaled_box

Floats = NDArray[np.float64]
Kernel = Callable[[Floats], Floats]

_FAR = 2.0**31
_BITS = 22
_REACH = (-1, 0, 1, 2)


@dataclass(frozen=True, eq=False)
class Warp:
    """Where each pixel `[h, w]` is sampled: whole columns and rows, and fractions beyond them.

    Without `down` the rows are whole, and only four pixels beside one another are weighed.
    """

    shape: Shape
    columns: Whole
    across: Floats
    rows: Whole
    down: Floats | None = None

    def write(self, graph: Graph, images: str) -> str:
        """Append the bicubic warp (a = −1, truncated) in a mirrored surround."""
        shape = self.shape
        if not self.across.any() and (self.down is None or not self.down.any()):
            source = mirrored(self.rows, shape.height) * shape.width
            return PixelMap(source + mirrored(self.columns, shape.width), shape).write(
                graph, images
            )
        taps = self._taps(graph, images)
        if self.down is None:
            value = self._along(graph, taps)
        else:
            # One row after another: four at once do not fit the cache.
            rows = [self._along(graph, row) for row in _parts(graph, taps, 0, 4)]
            value = _cubic(graph, rows, self.down.reshape(-1))
        levels = graph.add("Clip", value, np.float64(0), np.float64(255))
        levels = graph.cast(levels, np.uint8)
        return as_images(graph, levels, shape.channels, shape.height, shape.width)

    def _along(self, graph: Graph, taps: str) -> str:
        """Append the cubic across of one row's taps: float64 `[1, 1, n · c, pixel]`."""
        parts = [graph.cast(one, np.float32) for one in _parts(graph, taps, 1, 4)]
        return _whole_cubic(graph, parts, self.across.reshape(-1))

    def _taps(self, graph: Graph, images: str) -> str:
        """Append the pixels to weigh: uint8 `[1 or 4 down, 4 across, n · c, pixel]`."""
        shape = self.shape
        low, high = int(self.columns.min()) - 1, int(self.columns.max()) + 2
        surround = mirrored(np.arange(low, high + 1), shape.width)
        wide = take_columns(graph, images, surround, shape.width)
        width = len(surround) - 3
        # Four neighbours in one place are copied at once.
        shifted = [
            graph.add("Slice", wide, np.array([j]), np.array([j + width]), np.array([3]))
            for j in range(4)
        ]
        fours = graph.add("Concat", *shifted, axis=0)
        steps = (0,) if self.down is None else _REACH
        index = np.stack([mirrored(self.rows + i, shape.height) * width for i in steps])
        index = index.reshape(len(steps), -1) + (self.columns.reshape(-1) - 1 - low)
        taken = take_pixels(graph, fours, index, Shape(4, shape.height, width))
        return graph.add("Reshape", taken, np.array([len(steps), 4, -1, index.shape[1]]))


@dataclass(frozen=True, eq=False)
class Turned:
    """A warp of the image with rows and columns exchanged."""

    inner: Warp

    def write(self, graph: Graph, images: str) -> str:
        """Append the warp between two turns."""
        return turned(graph, self.inner.write(graph, turned(graph, images)))


def rotate(step: Step, shape: Shape) -> Warp:
    """Return the warp of `rotate`."""
    draws = step.fixed_draws or {}
    a, b, c, d, e, f = rotation(draws["sign"] * step.value, shape.width, shape.height)
    x, y = _centres(shape.width)[None, :], _centres(shape.height)[:, None]
    columns, across = _cells(a * x + b * y + c)
    rows, down = _cells(d * x + e * y + f)
    return Warp(shape, columns, across, rows, down)


def shear_x(step: Step, shape: Shape) -> Warp:
    """Return the warp of `shear_x`."""
    draws = step.fixed_draws or {}
    y = _centres(shape.height)[:, None]
    distance = shape.height - y if draws["edge"] == 1 else y
    columns, across = _cells(_centres(shape.width)[None, :] + draws["sign"] * step.value * distance)
    rows = np.broadcast_to(np.arange(shape.height)[:, None], columns.shape)
    return Warp(shape, columns, across, rows)


def shear_y(step: Step, shape: Shape) -> Turned:
    """Return the warp of `shear_y`."""
    return Turned(shear_x(step, shape.turned))


@dataclass(frozen=True, eq=False)
class Resize:
    """A box of images brought to another size (height, width), as Pillow's resize does."""

    shape: Shape
    box: Box
    size: tuple[int, int]
    interpolation: str = "bicubic"

    def write(self, graph: Graph, images: str) -> str:
        """Append the resize of uint8 images, across and down, with bytes in between."""
        box, (height, width) = self.box, self.size
        rows = np.arange(box.top, box.top + box.height)
        columns = np.arange(box.left, box.left + box.width)
        if self.interpolation == "nearest":
            rows, columns = rows[_nearest(box.height, height)], columns[_nearest(box.width, width)]
            images = take_rows(graph, images, rows, self.shape.height)
            return take_columns(graph, images, columns, self.shape.width)
        images = take_rows(graph, images, rows, self.shape.height)
        images = take_columns(graph, images, columns, self.shape.width)
        # Pillow 13 goes down first where that alone makes the image smaller.
        if height < box.height and width >= box.width:
            return self._across(graph, self._down(graph, images))
        return self._down(graph, self._across(graph, images))

    def _across(self, graph: Graph, images: str) -> str:
        if self.box.width == self.size[1]:
            return images
        return turned(graph, self._weigh(graph, turned(graph, images), 1))

    def _down(self, graph: Graph, images: str) -> str:
        return images if self.box.height == self.size[0] else self._weigh(graph, images, 0)

    def _weigh(self, graph: Graph, images: str, axis: int) -> str:
        """Append the weighted sums of rows that make new ones."""
        length = (self.box.height, self.box.width)[axis]
        first, weights = resize_taps(length, self.size[axis], self.interpolation)
        whole = graph.cast(images, np.int32)
        total: Value = np.int32(1 << (_BITS - 1))
        for tap, weight in enumerate(weights):
            # Past the box the weight is zero; the index only has to be a valid one.
            index = np.minimum(first + tap, length - 1)
            taken = graph.add("Gather", whole, index.astype(np.int32), axis=2)
            total = graph.add("Add", graph.add("Mul", taken, weight[:, None]), total)
        # Rounds negative sums up, not down; both are cut off at 0.
        level = graph.add("Div", total, np.int32(1 << _BITS))
        return graph.cast(graph.add("Clip", level, np.int32(0), np.int32(255)), np.uint8)


def scale_crop(step: Step, shape: Shape) -> Resize:
    """Return the resize of `scale_crop`."""
    draws = step.fixed_draws or {}
    places = (draws[name] for name in ("area", "aspect", "x", "y"))
    box = scaled_box(shape.width, shape.height, step.value, *places)
    return Resize(shape, box, (shape.height, shape.width))


def zoom(step: Step, shape: Shape) -> Resize:
    """Return the resize of `zoom`."""
    draws = step.fixed_draws or {}
    width, height = step.value * shape.width, step.value * shape.height
    box = placed_box(shape.width, shape.height, width, height, draws["x"], draws["y"])
    return Resize(shape, box, (shape.height, shape.width))


def resize_taps(length: int, size: int, interpolation: str) -> tuple[Whole, NDArray[np.int32]]:
    """Return each new pixel's first tap `[size]` and the weights in fixed point `[tap, size]`."""
    support, kernel = KERNELS[interpolation]
    scale = length / size
    reach = max(scale, 1.0)
    centre = (np.arange(size) + 0.5) * scale
    first = np.maximum(np.trunc(centre - support * reach + 0.5), 0)
    end = np.minimum(np.trunc(centre + support * reach + 0.5), length)
    taps = first + np.arange(int((end - first).max()))[:, None]
    weights = np.where(taps < end, kernel((taps - centre + 0.5) * (1.0 / reach)), 0.0)
    total = np.zeros(size)
    for weight in weights:  # one by one and in order, as Pillow adds them up
        total = total + weight
    scaled = weights / total * (1 << _BITS)
    fixed = (scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32)
    return first.astype(np.int64), fixed


def _bicubic(distance: Floats) -> Floats:
    t = np.abs(distance)
    near = (1.5 * t - 2.5) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * -0.5
    return np.where(t < 1.0, near, np.where(t < 2.0, far, 0.0))


def _bilinear(distance: Floats) -> Floats:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _box(distance: Floats) -> Floats:
    return np.where((distance > -0.5) & (distance <= 0.5), 1.0, 0.0)


def _hamming(distance: Floats) -> Floats:
    t = np.abs(distance)
    return np.where(t < 1.0, np.sinc(t) * (0.54 + 0.46 * np.cos(t * math.pi)), 0.0)


def _lanczos(distance: Floats) -> Floats:
    inside = (distance >= -3.0) & (distance < 3.0)
    return np.where(inside, np.sinc(distance) * np.sinc(distance / 3), 0.0)


KERNELS = MappingProxyType(
    {
        "bicubic": (2.0, _bicubic),
        "bilinear": (1.0, _bilinear),
        "box": (0.5, _box),
        "hamming": (1.0, _hamming),
        "lanczos": (3.0, _lanczos),
    }
)
"""Pillow's resampling kernels by name, each with its reach."""


def mirrored(index: Whole, length: int) -> Whole:
    """Fold whole numbers into 0 … length − 1 by reflection at both ends."""
    period = 2 * (length - 1)
    folded = np.mod(index, period)
    return np.asarray(np.minimum(folded, period - folded))


def _nearest(length: int, size: int) -> Whole:
    return ((np.arange(size) + 0.5) * (length / size)).astype(np.int64)


def _centres(length: int) -> Floats:
    return np.arange(length, dtype=np.float64) + 0.5


def _cells(coordinate: Floats) -> tuple[Whole, Floats]:
    """Split coordinates into the pixel before them and the distance to it."""
    position = np.clip(coordinate, -_FAR, _FAR) - 0.5
    pixel = np.floor(position)
    return pixel.astype(np.int64), position - pixel


def _parts(graph: Graph, value: str, axis: int, count: int) -> list[str]:
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
