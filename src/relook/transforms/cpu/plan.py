"""Steps → a few compiled kernels: neighbours merged where the bytes stay equal.

FAST maps a transform to its part of a plan: a point transform or a move, which merge with
neighbours of their kind, or a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relook.transforms.cpu.blends import color, sharpness
from relook.transforms.cpu.moves import apply_moves, blacken
from relook.transforms.cpu.points import Point, apply_points
from relook.transforms.cpu.resize import resize_boxes
from relook.transforms.cpu.shear import shear_x, shear_y
from relook.transforms.cpu.warp import rotate
from relook.transforms.geometry import Box, placed_box, rotation, scaled_box
from relook.transforms.steps import AppliedStep, Draws, Floats

Shape = tuple[int, ...]

# As in the torch kernels: far outside every image, and factors that stay finite in float32.
_FAR = 2.0**31
_LARGEST_FACTOR = 1e30
# Steeper shears round each pixel of a row differently; nobody asks for them.
_STEEPEST = 1000.0


@dataclass(frozen=True)
class Operation:
    """A compiled kernel `(images, out, *for_each, *shared)`; `for_each` has a row an image.

    A light one takes hardly longer than copying the images.
    """

    kernel: Callable[..., None]
    for_each: tuple[NDArray[Any], ...]
    shared: tuple[NDArray[Any], ...] = ()
    light: bool = False


@dataclass(frozen=True)
class PointStep:
    """A point transform; what its values mean is in `apply_points`."""

    point: Point
    values: Floats


@dataclass(frozen=True)
class MoveStep:
    """A shift of whole pixels and a flip, int64 `[n]`; outside is black or mirrored."""

    right: NDArray[np.int64]
    down: NDArray[np.int64]
    flip: NDArray[np.int64]
    black: bool


Part = Operation | PointStep | MoveStep
Builder = Callable[[Shape, Floats, Draws], Part | None]


def make_plan(steps: Sequence[AppliedStep], shape: Shape) -> list[Operation] | None:
    """Return the kernels for images `[n, c, h, w]`; None where a step has no fast form."""
    parts: list[Part] = []
    for step in steps:
        if step.transform == "identity" or (step.transform == "color" and shape[1] == 1):
            continue
        builder = FAST.get(step.transform)
        part = None if builder is None else builder(shape, step.values, step.draws)
        if part is None:
            return None
        parts.append(part)
    return _merged(parts)


def _merged(parts: Sequence[Part]) -> list[Operation]:
    """Turn runs of point transforms, and runs of moves, into one operation each."""
    operations: list[Operation] = []
    run: list[Any] = []
    for i, part in enumerate(parts):
        if isinstance(part, Operation):
            operations.append(part)
            continue
        run.append(part)
        if i + 1 == len(parts) or type(parts[i + 1]) is not type(part):
            operations.append(_points(run) if isinstance(part, PointStep) else _moves(run))
            run = []
    return operations


def _points(run: Sequence[PointStep]) -> Operation:
    codes = np.array([part.point for part in run], dtype=np.int64)
    values = np.stack([part.values for part in run], 1)
    light = len(run) == 1 and run[0].point < Point.CONTRAST
    return Operation(apply_points, (values,), (codes,), light)


def _moves(run: Sequence[MoveStep]) -> Operation:
    moves = np.stack([np.stack([part.right, part.down, part.flip], 1) for part in run], 1)
    black = np.array([part.black for part in run])
    return Operation(apply_moves, (moves,), (black,), light=True)


def _point(point: Point) -> Builder:
    return lambda shape, values, draws: PointStep(point, values)


def _enhance(point: Point) -> Builder:
    return lambda shape, values, draws: PointStep(point, _factors(values).astype(np.float64))


def _factors(values: Floats) -> NDArray[np.float32]:
    return np.clip(1 + values, -_LARGEST_FACTOR, _LARGEST_FACTOR).astype(np.float32)


def _autocontrast(shape: Shape, values: Floats, draws: Draws) -> Part:
    # torch's floor division, which is not the floor of the quotient in the last digit.
    cut = torch.div(shape[2] * shape[3] * torch.from_numpy(values), 100, rounding_mode="floor")
    return PointStep(Point.AUTOCONTRAST, cut.numpy())


def _blend(kernel: Callable[..., None]) -> Builder:
    return lambda shape, values, draws: Operation(kernel, (_factors(values),))


def _rotate(shape: Shape, values: Floats, draws: Draws) -> Part:
    angles, which = np.unique(draws["sign"] * values, return_inverse=True)
    matrices = [rotation(angle, shape[3], shape[2]) for angle in angles.tolist()]
    return Operation(rotate, (np.array(matrices).reshape(-1, 6)[which],))


def _shear(kernel: Callable[..., None]) -> Builder:
    def build(shape: Shape, values: Floats, draws: Draws) -> Part | None:
        slopes = draws["sign"] * values
        if np.abs(slopes).max(initial=0.0) > _STEEPEST:
            return None
        return Operation(kernel, (slopes, draws["edge"]))

    return build


def _translate(axis: int) -> Builder:
    def build(shape: Shape, values: Floats, draws: Draws) -> Part:
        shift = np.floor(np.clip(draws["sign"] * values * shape[axis] + 0.5, -_FAR, _FAR))
        still = np.zeros(len(values), np.int64)
        pixels = shift.astype(np.int64)
        right, down = (pixels, still) if axis == 3 else (still, pixels)
        return MoveStep(right, down, still, black=False)

    return build


def _crop(shape: Shape, values: Floats, draws: Draws) -> Part:
    pad = np.clip(np.rint(values), 0.0, _FAR)
    right, down = (
        (np.minimum(np.floor(draws[name] * (2 * pad + 1)), 2 * pad) - pad).astype(np.int64)
        for name in ("x", "y")
    )
    flip = draws["flip"] if "flip" in draws else np.zeros(len(values))
    return MoveStep(right, down, (flip == 1).astype(np.int64), black=True)


def _flip(shape: Shape, values: Floats, draws: Draws) -> Part:
    still = np.zeros(len(values), np.int64)
    return MoveStep(still, still, still + 1, black=False)


def _cutout(shape: Shape, values: Floats, draws: Draws) -> Part:
    side = np.clip(np.rint(values * shape[3]), 0.0, _FAR)
    edges = []
    for name, length in (("x", shape[3]), ("y", shape[2])):
        centre = np.clip(np.floor(draws[name] * length), 0, length - 1)
        start = centre - np.floor(side / 2)
        edges += [np.clip(start, 0, length), np.clip(start + side, 0, length)]
    return Operation(blacken, (np.stack(edges, 1).astype(np.int64),), light=True)


def _scale_crop(shape: Shape, values: Floats, draws: Draws) -> Part:
    rows = np.stack([values, *(draws[name] for name in ("area", "aspect", "x", "y"))], 1)
    boxes = _for_rows(rows, lambda row: scaled_box(shape[3], shape[2], *row))
    return _resize(boxes, draws.get("flip"))


def _zoom(shape: Shape, values: Floats, draws: Draws) -> Part:
    height, width = shape[2:]
    rows = np.stack([values, draws["x"], draws["y"]], 1)
    return _resize(
        _for_rows(rows, lambda r: placed_box(width, height, r[0] * width, r[0] * height, *r[1:]))
    )


def _for_rows(rows: Floats, make: Callable[[list[float]], Box]) -> list[Box]:
    """Return each row's box; equal rows, as of fixed draws, are made once."""
    if (rows == rows[:1]).all():
        return [make(row) for row in rows[:1].tolist()] * len(rows)
    return [make(row) for row in rows.tolist()]


def _resize(boxes: Sequence[Box], flip: Floats | None = None) -> Part:
    spans = [(box.left, box.width, box.top, box.height) for box in boxes]
    flips = np.zeros(len(boxes)) if flip is None else flip
    return Operation(resize_boxes, (np.array(spans, dtype=np.int64).reshape(-1, 4), flips))


FAST: Mapping[str, Builder] = MappingProxyType(
    {
        "shear_x": _shear(shear_x),
        "shear_y": _shear(shear_y),
        "translate_x": _translate(3),
        "translate_y": _translate(2),
        "rotate": _rotate,
        "autocontrast": _autocontrast,
        "solarize": _point(Point.SOLARIZE),
        "solarize_add": _point(Point.SOLARIZE_ADD),
        "posterize": _point(Point.POSTERIZE),
        "contrast": _enhance(Point.CONTRAST),
        "brightness": _enhance(Point.BRIGHTNESS),
        "color": _blend(color),
        "sharpness": _blend(sharpness),
        "cutout": _cutout,
        "invert": _point(Point.INVERT),
        "equalize": _point(Point.EQUALIZE),
        "scale_crop_flip": _scale_crop,
        "scale_crop": _scale_crop,
        "crop_flip": _crop,
        "crop": _crop,
        "flip": _flip,
        "zoom": _zoom,
    }
)
"""The transforms that have a fast form, by name; the others go through the torch kernels."""
