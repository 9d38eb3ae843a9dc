"""Steps → a few compiled kernels: neighbours merged where the bytes stay equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from relook.transforms.cpu.moves import MoveStep, merged_moves
from relook.transforms.cpu.operation import Operation, Shape, by_kernel
from relook.transforms.cpu.points import PointStep, merged_points
from relook.transforms.steps import AppliedStep
from relook.transforms.table import TRANSFORMS, load_form

Part = Operation | PointStep | MoveStep
"""What a compiled form `(step, shape)` returns; points and moves merge with their neighbours."""


def make_plan(steps: Sequence[AppliedStep], shape: Shape) -> list[Operation]:
    """Return the kernels for images `[n, c, h, w]`; none where the steps change nothing."""
    parts = [part for step in steps if (part := _part(step, shape)) is not None]
    operations: list[Operation] = []
    for _, run in groupby(parts, key=type):
        alike = list(run)
        points = [part for part in alike if isinstance(part, PointStep)]
        moves = [part for part in alike if isinstance(part, MoveStep)]
        operations += [merged_points(points)] if points else []
        operations += [merged_moves(moves)] if moves else []
        operations += [part for part in alike if isinstance(part, Operation)]
    return operations


def _part(step: AppliedStep, shape: Shape) -> Part | None:
    """Return a step's part of the plan; None where it leaves the images as they are."""
    form = TRANSFORMS[step.transform].cpu
    if form is None:
        return by_kernel(step)
    part: Part | None = load_form(form)(step, shape)
    return part
