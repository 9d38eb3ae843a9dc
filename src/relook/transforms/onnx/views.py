"""Views in an ONNX graph, step by step: the bytes of `relook.transforms.apply`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from relook.errors import RelookError
from relook.transforms.onnx.graph import Graph, Shape
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import ONNX_LEVELS, ONNX_MOVES, TRANSFORMS, load_form


def write_steps(graph: Graph, images: str, steps: Sequence[AppliedStep], shape: Shape) -> str:
    """Append one view of uint8 images `[n, c, h, w]`, the same steps for all; returns its name.

    A step has one value and one draw of each name.
    """
    for form, run in groupby(steps, key=_form):
        write = load_form(form)
        if form in (ONNX_LEVELS, ONNX_MOVES):  # neighbours become one
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
            f"relook.TTA, or search again without it (--exclude {step.transform})"
        )
        raise StepError(step, RelookError(message))
    return form
