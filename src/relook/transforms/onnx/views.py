"""Views in an ONNX graph, step by step, with the bytes of `relook.transforms.apply`.

Runs of steps that only map grey levels or move pixels are derived from the table's kernels. These
are run once, on an image of all grey levels or of the pixels' own numbers, so that the graph does
the same by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
import torch

from relook.errors import RelookError
from relook.transforms.apply import apply_kernels, level_tables
from relook.transforms.onnx.geometry import move_pixels
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import ONNX_LEVELS, ONNX_MOVES, TRANSFORMS, load_form

_DIGITS, _BASE = 4, 255


def write_steps(graph: Graph, images: str, steps: Sequence[AppliedStep], shape: Shape) -> str:
    """Append one view of uint8 images `[n, c, h, w]`, with the same steps for all; return its name.

    A step has one value and one draw of each name.
    """
    for form, run in groupby(steps, key=_form):
        write = load_form(form)
        if form in (ONNX_LEVELS, ONNX_MOVES):  # neighbouring steps become one operation
            images = write(graph, images, list(run), shape)
        else:
            for step in run:
                images = write(graph, images, step, shape)
    return images


def _form(step: AppliedStep) -> str:
    form = TRANSFORMS[step.transform].onnx
    if form is None:
        message = (
            f"{step.transform} has no ONNX form: export with format torch-export, deploy "
            f"relook.TTA, or search again without it (exclude {step.transform})"
        )
        raise StepError(step, RelookError(message))
    return form


def levels(graph: Graph, images: str, steps: Sequence[AppliedStep], shape: Shape) -> str:
    """Append one look-up for steps that depend only on grey levels."""
    table = np.arange(256)
    for step in steps:
        table = level_tables(step.transform, step.values.tolist())[0][table]
    if np.array_equal(table, np.arange(256)):
        return images
    size = graph.add("Shape", images)
    # GatherElements is several times faster than Gather, but needs one row here.
    row = graph.add("Reshape", images, np.array([1, -1]))
    found = graph.add("GatherElements", table[None], graph.cast(row, np.int32), axis=1)
    return graph.add("Reshape", found, size)


def moves(graph: Graph, images: str, steps: Sequence[AppliedStep], shape: Shape) -> str:
    """Append one selection of pixels for steps that only move or blacken pixels."""
    number = np.arange(shape.pixels).reshape(1, 1, shape.height, shape.width)
    digits = [number // _BASE**place % _BASE + 1 for place in range(_DIGITS)]
    marked = torch.from_numpy(np.concatenate(digits).astype(np.uint8))
    moved = apply_kernels(marked, [_repeated(step) for step in steps]).numpy().astype(np.int64)
    source = sum(((moved[i, 0] - 1) * _BASE**i for i in range(_DIGITS)), np.int64(0))
    return move_pixels(graph, images, np.where(moved[0, 0] == 0, -1, source), shape)


def _repeated(step: AppliedStep) -> AppliedStep:
    """Return a step of one image repeated for an image per digit."""
    draws = {name: draw.repeat(_DIGITS) for name, draw in step.draws.items()}
    return replace(step, values=step.values.repeat(_DIGITS), draws=draws)
