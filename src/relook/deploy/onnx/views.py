"""Views of fixed sub-policies in an ONNX graph: the bytes of `relook.policy.views`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Protocol

from relook.deploy.onnx import points as onnx_points
from relook.deploy.onnx import warps as onnx_warps
from relook.deploy.onnx.moves import Levels, PixelMap, Shape, read_levels, read_moves
from relook.deploy.onnx.writer import Graph
from relook.errors import RelookError
from relook.policy import Step, SubPolicy


class Operation(Protocol):
    """Something that a step does to images, with all its numbers known."""

    def write(self, graph: Graph, images: str) -> str:
        """Append it to a graph: uint8 images `[n, c, h, w]` in and out, by name."""


Writer = Callable[[Step, Shape], Operation]


def write_view(graph: Graph, images: str, subpolicy: SubPolicy, shape: Shape) -> str:
    """Append one view of uint8 images `[n, c, h, w]`; returns its name."""
    if not subpolicy.is_fixed:
        raise RelookError(
            f"expected a fixed sub-policy to export, got “{subpolicy}”, which is drawn anew for "
            "each image: freeze the policy with policy.freeze(seed)"
        )
    operations: list[Operation] = []
    for place, step in enumerate(subpolicy.all_steps):
        try:
            operations.extend(_operations(step, shape))
        except RelookError as error:
            raise RelookError(f"step {place + 1} of “{subpolicy}”: {error}") from error
    for operation in merged(operations):
        images = operation.write(graph, images)
    return images


def merged(operations: Sequence[Operation]) -> list[Operation]:
    """Make one operation of neighbours that both move pixels, or both map grey levels."""
    found: list[Operation] = []
    for operation in operations:
        last = found[-1] if found else None
        if isinstance(operation, PixelMap | Levels) and type(operation) is type(last):
            found[-1] = operation.after(last)  # type: ignore[arg-type]  # of one class
        else:
            found.append(operation)
    return found


def _operations(step: Step, shape: Shape) -> list[Operation]:
    if step.transform == "identity":
        return []
    if step.transform == "scale_crop_flip":
        draws = dict(step.fixed_draws or {})
        flip = draws.pop("flip")
        cut = onnx_warps.scale_crop(Step("scale_crop", step.magnitude, draws=draws), shape)
        return [cut, read_moves(Step("flip", 0), shape)] if flip else [cut]
    writer = WRITERS.get(step.transform)
    if writer is None:
        raise RelookError(f"{step.transform} cannot be written as ONNX: leave the sub-policy out")
    return [writer(step, shape)]


def _levels(step: Step, shape: Shape) -> Levels:
    return read_levels(step)


WRITERS: MappingProxyType[str, Writer] = MappingProxyType(
    {
        **dict.fromkeys(("invert", "solarize", "solarize_add", "posterize", "brightness"), _levels),
        **dict.fromkeys(
            ("crop", "crop_flip", "flip", "quarter_turn", "translate_x", "translate_y", "cutout"),
            read_moves,
        ),
        "rotate": onnx_warps.rotate,
        "shear_x": onnx_warps.shear_x,
        "shear_y": onnx_warps.shear_y,
        "scale_crop": onnx_warps.scale_crop,
        "zoom": onnx_warps.zoom,
        "autocontrast": onnx_points.autocontrast,
        "equalize": onnx_points.equalize,
        "contrast": onnx_points.contrast,
        "color": onnx_points.color,
        "sharpness": onnx_points.sharpness,
    }
)
"""What writes each transform, by name."""
