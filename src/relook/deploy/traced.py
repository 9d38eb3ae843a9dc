"""Fixed views in plain torch operations: what torch.compile and torch.export can follow.

The same arithmetic as the table's kernels, so the same bytes, but a step's numbers are
Python's, known while a graph is made, and the number of images may stay open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import unwrap
from types import MappingProxyType

import torch
from torch import Tensor

from relook.errors import RelookError
from relook.policy import SubPolicy
from relook.transforms import TRANSFORMS
from relook.transforms.geometry import (
    Box,
    pixel_centres,
    placed_box,
    resize_axis,
    rotation,
    scaled_box,
    warp_part,
    warp_rows_part,
)

Draws = Mapping[str, float]
TracedStep = Callable[[Tensor], Tensor]

# A cubic that enlarges, or keeps the size, reaches two pixels either way.
_TAPS = 4
# Without the checks, which want one number an image and look at it.
_KERNELS = {name: unwrap(row.kernel) for name, row in TRANSFORMS.items()}


def traced_steps(subpolicy: SubPolicy) -> tuple[TracedStep, ...]:
    """Return one function of uint8 images `[n, c, h, w]` for each step; all must be fixed."""
    if not subpolicy.is_fixed:
        raise RelookError(
            f"expected a fixed sub-policy to trace, got “{subpolicy}”, which is drawn anew for "
            "each image: freeze the policy with policy.freeze(seed)"
        )
    return tuple(
        partial(
            _run,
            step.transform,
            repr(step.value),
            {name: repr(draw) for name, draw in (step.fixed_draws or {}).items()},
        )
        for step in subpolicy.all_steps
    )


def run_steps(steps: Sequence[TracedStep], images: Tensor) -> Tensor:
    """Apply steps, one after another."""
    for step in steps:
        images = step(images)
    return images


def _run(transform: str, value: str, draws: Mapping[str, str], images: Tensor) -> Tensor:
    # As text: torch.compile may leave a float open, to be given at each call.
    numbers = {name: float(draw) for name, draw in draws.items()}
    special = _SPECIAL.get(transform)
    if special is None:
        return _plain(transform, float(value), numbers, images)
    return special(float(value), numbers, images)


def _plain(transform: str, value: float, draws: Draws, images: Tensor) -> Tensor:
    """Run the table's kernel with one value for all images, which it broadcasts."""
    one = {name: _one(number, images) for name, number in draws.items()}
    made: Tensor = _KERNELS[transform](images, _one(value, images), **one)
    return made


def _one(number: float, images: Tensor) -> Tensor:
    return torch.full((1,), number, dtype=torch.float64, device=images.device)


def _rotate(value: float, draws: Draws, images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    a, b, c, d, e, f = rotation(draws["sign"] * value, width, height)
    x, y = pixel_centres(images)
    return warp_part(images, a * x + b * y + c, d * x + e * y + f)


def _shear_x(value: float, draws: Draws, images: Tensor) -> Tensor:
    x, y = pixel_centres(images)
    distance = images.shape[2] - y if draws["edge"] == 1 else y
    return warp_rows_part(images, x + draws["sign"] * value * distance)


def _crop_flip(value: float, draws: Draws, images: Tensor) -> Tensor:
    place = {name: draws[name] for name in ("x", "y")}
    return _flip(draws["flip"], _plain("crop", value, place, images))


def _scale_crop(value: float, draws: Draws, images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    numbers = (draws[name] for name in ("area", "aspect", "x", "y"))
    return _resize(images, scaled_box(width, height, value, *numbers))


def _scale_crop_flip(value: float, draws: Draws, images: Tensor) -> Tensor:
    return _flip(draws["flip"], _scale_crop(value, draws, images))


def _zoom(value: float, draws: Draws, images: Tensor) -> Tensor:
    height, width = images.shape[2:]
    box = placed_box(width, height, value * width, value * height, draws["x"], draws["y"])
    return _resize(images, box)


def _resize(images: Tensor, box: Box) -> Tensor:
    for axis, start, length in ((3, box.left, box.width), (2, box.top, box.height)):
        first, span = (torch.full((1,), n, device=images.device) for n in (start, length))
        images = resize_axis(images, axis, first, span, images.shape[axis], _TAPS)
    return images


def _quarter_turn(value: float, draws: Draws, images: Tensor) -> Tensor:
    turns = round(value) % 4
    height, width = images.shape[2:]
    if turns % 2 and height != width:
        raise RelookError(
            f"quarter_turn: expected square images for an odd number of quarter turns, got "
            f"{height}×{width} (height × width); crop them square or use half turns"
        )
    return torch.rot90(images, turns, (2, 3))


def _flip(flip: float, images: Tensor) -> Tensor:
    return images.flip(3) if flip == 1 else images


def _transposed(name: str, value: float, draws: Draws, images: Tensor) -> Tensor:
    """Do along the columns what a transform does along the rows."""
    turned = images.transpose(2, 3).contiguous()
    if name == "shear_x":
        return _shear_x(value, draws, turned).transpose(2, 3).contiguous()
    return _plain(name, value, draws, turned).transpose(2, 3).contiguous()


_SPECIAL: Mapping[str, Callable[[float, Draws, Tensor], Tensor]] = MappingProxyType(
    {
        "rotate": _rotate,
        "shear_x": _shear_x,
        "shear_y": partial(_transposed, "shear_x"),
        "translate_y": partial(_transposed, "translate_x"),
        "crop_flip": _crop_flip,
        "scale_crop": _scale_crop,
        "scale_crop_flip": _scale_crop_flip,
        "zoom": _zoom,
        "quarter_turn": _quarter_turn,
    }
)
"""Transforms whose kernels look at their numbers, or call another one, by name."""
