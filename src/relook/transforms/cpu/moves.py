"""Runs of crops, flips and translations, merged into one indexing; and cutout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.transforms.apply import Operation, Shape
from relook.transforms.cpu.instructions import compiled, copy_image, helper, read, u8, write
from relook.transforms.geometry import covered, crop_offset, whole_shift
from relook.transforms.steps import AppliedStep


@dataclass(frozen=True)
class MoveStep:
    """Shifts by whole pixels and flips, int64 `[n]`; outside the image is black or mirrored."""

    right: NDArray[np.int64]
    down: NDArray[np.int64]
    flip: NDArray[np.int64]
    black: bool = False

    @staticmethod
    def merged(run: Sequence[MoveStep]) -> Operation:
        """Merge consecutive moves into one operation."""
        moves = np.stack([np.stack([part.right, part.down, part.flip], 1) for part in run], 1)
        black = np.array([part.black for part in run])
        return Operation(_apply_moves, (moves,), (black,), light=True)


def translate_x(step: AppliedStep, shape: Shape) -> MoveStep:
    """Return the move of `translate_x`."""
    zeros = np.zeros(len(step.values), np.int64)
    return MoveStep(_whole(whole_shift(step.draws["sign"] * step.values, shape[3])), zeros, zeros)


def translate_y(step: AppliedStep, shape: Shape) -> MoveStep:
    """Return the move of `translate_y`."""
    zeros = np.zeros(len(step.values), np.int64)
    return MoveStep(zeros, _whole(whole_shift(step.draws["sign"] * step.values, shape[2])), zeros)


def crop(step: AppliedStep, shape: Shape) -> MoveStep:
    """Return the move of `crop` or `crop_flip`."""
    right, down = (_whole(crop_offset(step.values, step.draws[name])) for name in ("x", "y"))
    flip = step.draws.get("flip", np.zeros(len(step.values)))
    return MoveStep(right, down, _whole(flip == 1), black=True)


def reflect_crop(step: AppliedStep, shape: Shape) -> MoveStep:
    """Return the move of `reflect_crop` or `reflect_crop_flip`."""
    return replace(crop(step, shape), black=False)


def flip(step: AppliedStep, shape: Shape) -> MoveStep:
    """Return the move of `flip`."""
    zeros = np.zeros(len(step.values), np.int64)
    return MoveStep(zeros, zeros, zeros + 1)


def cutout(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `cutout`."""
    edges = [
        edge.clip(0, length)
        for name, length in (("x", shape[3]), ("y", shape[2]))
        for edge in covered(length, step.draws[name], step.values * shape[3])
    ]
    return Operation(_blacken, (_whole(np.stack(edges, 1)),), light=True)


def _whole(numbers: NDArray[Any]) -> NDArray[np.int64]:
    return numbers.astype(np.int64)


@compiled
def _apply_moves(images: Any, out: Any, moves: Any, black: Any) -> None:
    """Take each pixel from elsewhere: int64 moves `[n, step, 3]` of (right, down, flip).

    A step takes pixel x + right, y + down, with x counted from the row's end if flip is 1. Outside
    the image it is black if `black[step]`, otherwise mirrored.
    """
    n, channels, height, width = images.shape
    columns, rows = np.empty(width, np.int64), np.empty(height, np.int64)
    for i in range(n):
        _find_sources(moves[i], black, 0, columns)
        _find_sources(moves[i], black, 1, rows)
        start, stop, stride = _longest_run(columns)
        for channel in range(channels):
            plane = (i * channels + channel) * height * width
            for y in range(height):
                to = plane + y * width
                if rows[y] < 0:
                    for x in range(width):
                        write(out, to + x, u8(0), 51)
                    continue
                base = plane + rows[y] * width
                _copy_indexed(images, base, columns, 0, start, out, to)
                _copy_run(images, base + columns[start], stride, out, to + start, stop - start)
                _copy_indexed(images, base, columns, stop, width, out, to)


@helper
def _find_sources(moves: Any, black: Any, axis: int, places: Any) -> None:
    """Write the source of each column (axis 0) or row (1); −1: it is black."""
    length = len(places)
    for x in range(length):
        place = x
        for step in range(len(moves) - 1, -1, -1):
            if axis == 0 and moves[step, 2] == 1:
                place = length - 1 - place
            place += moves[step, axis]
            if place < 0 or place >= length:
                if black[step]:
                    place = -1
                    break
                place %= 2 * (length - 1)
                place = min(place, 2 * (length - 1) - place)
        places[x] = place


@helper
def _longest_run(columns: Any) -> Any:
    """Return start, stop and direction (±1) of the longest run of consecutive columns."""
    best_start, best_stop, best_stride, start = 0, 0, 1, 0
    for x in range(1, len(columns)):
        stride = columns[x] - columns[x - 1]
        good = (stride == 1 or stride == -1) and columns[x] >= 0 and columns[x - 1] >= 0
        if not good or (x - 1 > start and stride != columns[x - 1] - columns[x - 2]):
            start = x - 1 if good else x
        if good and x + 1 - start > best_stop - best_start:
            best_start, best_stop, best_stride = start, x + 1, stride
    return best_start, best_stop, best_stride


@helper
def _copy_run(images: Any, base: int, stride: int, out: Any, to: int, count: int) -> None:
    if stride == 1:
        for x in range(count):
            write(out, to + x, read(images, base + x, 52), 52)
    else:
        for x in range(count):
            write(out, to + x, read(images, base - x, 53), 53)


@helper
def _copy_indexed(
    images: Any, base: int, columns: Any, start: int, stop: int, out: Any, to: int
) -> None:
    for x in range(start, stop):
        column = columns[x]
        write(out, to + x, read(images, base + max(column, 0), 54) if column >= 0 else u8(0), 54)


@compiled
def _blacken(images: Any, out: Any, boxes: Any) -> None:
    """Copy the images, and blacken a box of each: int64 boxes `[n, 4]`, left, right, top, bottom.

    Right and bottom are exclusive.
    """
    n, channels, height, width = images.shape
    for i in range(n):
        left, right, top, bottom = boxes[i]
        copy_image(images, i, out)
        for channel in range(channels):
            for y in range(top, bottom):
                base = ((i * channels + channel) * height + y) * width
                for x in range(left, right):
                    write(out, base + x, u8(0), 55)
