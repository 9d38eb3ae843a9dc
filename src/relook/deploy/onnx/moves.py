"""Steps that only move pixels or map grey levels: read off from relook's own kernels.

A kernel is run once on a picture whose pixels carry their own number (or on one of each grey
level), so that what is written into a graph is what the kernel does, by construction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.deploy.onnx.writer import Graph
from relook.policy import Step
from relook.transforms import TRANSFORMS

Whole = NDArray[np.int64]

_DIGITS, _BASE = 4, 255
_BLACK = -1


@dataclass(frozen=True)
class Shape:
    """What an image is: channels, height and width."""

    channels: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Height times width."""
        return self.height * self.width

    @property
    def turned(self) -> Shape:
        """The same with height and width exchanged."""
        return Shape(self.channels, self.width, self.height)


@dataclass(frozen=True, eq=False)
class PixelMap:
    """Where each pixel comes from: row · width + column `[h, w]` of the source, −1 for black."""

    source: Whole
    shape: Shape
    """Of the images that pixels are taken from."""

    def after(self, first: PixelMap) -> PixelMap:
        """Return this map applied to what another one made."""
        taken = np.where(self.source < 0, 0, self.source)
        source = np.where(self.source < 0, _BLACK, first.source.reshape(-1)[taken])
        return PixelMap(source, first.shape)

    def write(self, graph: Graph, images: str) -> str:
        """Append the map of uint8 images `[n, c, h, w]`."""
        black, shape = self.source < 0, self.shape
        rows, columns = _lines(np.divmod(self.source, shape.width), black)
        separable = rows[:, None] * shape.width + columns[None, :]
        if np.array_equal(separable[~black], self.source[~black]):
            moved = take_rows(graph, images, rows, shape.height)
            moved = take_columns(graph, moved, columns, shape.width)
        else:
            index = np.where(black, 0, self.source)
            pixels = take_pixels(graph, images, index.reshape(1, -1), shape)
            moved = as_images(graph, pixels, shape.channels, *index.shape)
        if not black.any():
            return moved
        return graph.add("Where", black, np.zeros((), np.uint8), moved)


@dataclass(frozen=True, eq=False)
class Levels:
    """What each grey level becomes: uint8 `[256]`."""

    table: NDArray[np.uint8]

    def after(self, first: Levels) -> Levels:
        """Return this table applied to what another one made."""
        return Levels(self.table[first.table])

    def write(self, graph: Graph, images: str) -> str:
        """Append the look-up in uint8 images."""
        if np.array_equal(self.table, np.arange(256)):
            return images
        shape = graph.add("Shape", images)
        # GatherElements is several times faster than Gather, and wants one row here.
        row = graph.add("Reshape", images, np.array([1, -1]))
        levels = graph.cast(row, np.int32)
        found = graph.add("GatherElements", self.table[None], levels, axis=1)
        return graph.add("Reshape", found, shape)


def read_moves(step: Step, shape: Shape) -> PixelMap:
    """Return what a step that only moves pixels does to images of a shape."""
    number = np.arange(shape.pixels).reshape(1, 1, shape.height, shape.width)
    digits = [number // _BASE**place % _BASE + 1 for place in range(_DIGITS)]
    marked = torch.from_numpy(np.concatenate(digits).astype(np.uint8))
    moved = run_kernel(step, marked).numpy().astype(np.int64)[:, 0]
    source = sum(((moved[place] - 1) * _BASE**place for place in range(_DIGITS)), np.int64(0))
    return PixelMap(np.where(moved[0] == 0, _BLACK, source), shape)


def read_levels(step: Step) -> Levels:
    """Return what a step does to each grey level, wherever it stands."""
    picture = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    return Levels(run_kernel(step, picture).numpy().reshape(256))


def run_kernel(step: Step, images: Tensor) -> Tensor:
    """Apply a fixed step with the table's own kernel."""

    def for_each(number: float) -> Tensor:
        return torch.full((len(images),), number, dtype=torch.float64)

    draws = {name: for_each(number) for name, number in (step.fixed_draws or {}).items()}
    return TRANSFORMS[step.transform].kernel(images, for_each(step.value), **draws)


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


def as_images(graph: Graph, values: str, channels: int, height: int, width: int) -> str:
    """Append a change of shape to `[n, c, h, w]`."""
    return graph.add("Reshape", values, np.array([-1, channels, height, width]))


def _lines(places: tuple[Whole, Whole], black: NDArray[np.bool_]) -> tuple[Whole, Whole]:
    """Return the source's row of each row and column of each column; 0 where all is black."""
    rows, columns = (np.where(black, 0, place) for place in places)
    return rows.max(axis=1), columns.max(axis=0)


def _is_range(index: NDArray[Any], length: int) -> bool:
    return len(index) == length and np.array_equal(index, np.arange(length))
