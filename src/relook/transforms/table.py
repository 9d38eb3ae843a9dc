"""The table of transforms: their kernels, magnitude maps, draws and other forms.

The magnitude maps are those of the paper's appendix A; rows that are not in it say where they come
from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, TypeVar

from torch import Tensor

from relook.foundation.registry import Table, calling_module, check_names
from relook.transforms import color, geometry
from relook.transforms.checks import checked, checked_own

Kernel = Callable[..., Tensor]
OwnKernel = TypeVar("OwnKernel", bound=Kernel)

DRAWS = MappingProxyType(
    {
        "sign": "which way: −1 or +1",
        "edge": "which edge a shear keeps: 0 top or left, 1 bottom or right",
        "flip": "mirrored left to right: 0 or 1",
        "x": "horizontal place, as a share of the free range: 0 … 1",
        "y": "vertical place, as a share of the free range: 0 … 1",
        "area": "place within the range of areas: 0 … 1",
        "aspect": "place within the range of aspect ratios, by logarithm: 0 … 1",
    }
)
"""What can be drawn for a view, by name; a kernel takes each as a float64 tensor `[n]`."""


@dataclass(frozen=True)
class Transform:
    """One row: `kernel(images, values, **draws)` on uint8 `[n, c, h, w]`, never in place.

    `values` is float64 `[n]`, in the transform's own units; a signed transform gets
    direction × value. `trend` says how the value moves with the magnitude (+1, −1, or 0).

    The other forms are optional and named as `module:function` within `relook.transforms`, so
    that numba and onnx are imported only on use. `cpu` is the compiled form, without which the
    kernel runs; `onnx` writes the transform into a graph, without which it cannot be exported to
    ONNX; `full_size` cuts the view from an image larger than the model's input, and
    `onnx_full_size` does so in a graph.
    `origin` is where a user's transform was registered, as `module:name`.
    """

    name: str
    kernel: Kernel
    value: Callable[[float], float]
    unit: str
    trend: int = 1
    draws: tuple[str, ...] = ()
    signed: bool = False
    identity_at_zero: bool = True
    cpu: str | None = None
    onnx: str | None = None
    full_size: str | None = None
    onnx_full_size: str | None = None
    origin: str | None = None


@cache
def load_form(name: str) -> Callable[..., Any]:
    """Return the function that a row names as `module:function`."""
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(import_module(f"relook.transforms.{module}"), function)
    return found


def _solarize_threshold(m: float) -> float:
    return 256 - 64 / 15 * m


def _no_value(_: float) -> float:
    return 0.0


ONNX_LEVELS, ONNX_MOVES = "onnx.views:levels", "onnx.views:moves"
"""Forms derived from the kernel; neighbouring steps of one form become one operation."""

# What several rows have in common: those that depend only on a pixel's grey level, ...
_point = partial(Transform, cpu="cpu.color:by_level", onnx=ONNX_LEVELS)
# ... that only move or blacken pixels, ...
_move = partial(Transform, onnx=ONNX_MOVES)
_translation = partial(_move, value=lambda m: 0.015 * m, draws=("sign",))
_crop = partial(_move, value=lambda m: m, unit="pixels")
_shear = partial(Transform, value=lambda m: m / 60, draws=("sign", "edge"))
# ... that resample a box, and that blend by a factor whose sign is part of the step.
_scale_crop = partial(
    Transform,
    value=lambda m: max(0.08, 0.99 - 0.91 * m / 30),
    unit="of the area",
    trend=-1,
    identity_at_zero=False,
    cpu="cpu.resize:scale_crop",
    onnx="onnx.geometry:scale_crop",
    full_size="full_images:scale_crop",
    onnx_full_size="onnx.photos:scale_crop",
)
_enhancement = partial(Transform, unit="change of factor", signed=True)
_BOX = ("area", "aspect", "x", "y")

# fmt: off
_ROWS = (
    _point("identity", color.identity, _no_value, "none", trend=0),
    _shear("shear_x", geometry.shear_x, unit="width/height",
           cpu="cpu.shear:shear_x", onnx="onnx.geometry:shear_x"),
    _shear("shear_y", geometry.shear_y, unit="height/width",
           cpu="cpu.shear:shear_y", onnx="onnx.geometry:shear_y"),
    _translation("translate_x", geometry.translate_x, unit="of the width",
                 cpu="cpu.moves:translate_x"),
    _translation("translate_y", geometry.translate_y, unit="of the height",
                 cpu="cpu.moves:translate_y"),
    Transform("rotate", geometry.rotate, lambda m: 4 / 3 * m, "degrees", draws=("sign",),
              cpu="cpu.rotate:rotate", onnx="onnx.geometry:rotate"),
    Transform("autocontrast", color.autocontrast, lambda m: m / 3, "% cut off",
              identity_at_zero=False,
              cpu="cpu.color:autocontrast", onnx="onnx.color:autocontrast"),
    _point("solarize", color.solarize, _solarize_threshold, "grey level", trend=-1),
    _point("solarize_add", color.solarize_add, _solarize_threshold, "grey level", trend=-1),
    _point("posterize", color.posterize, lambda m: max(0.0, 8 - 0.2 * m), "bits", trend=-1),
    _enhancement("contrast", color.contrast, lambda m: 2 / 75 * m,
                 cpu="cpu.color:contrast", onnx="onnx.color:contrast"),
    _point("brightness", color.brightness, lambda m: 2 / 75 * m, "change of factor", signed=True),
    _enhancement("color", color.color, lambda m: 0.03 * m,
                 cpu="cpu.color:color", onnx="onnx.color:color"),
    _enhancement("sharpness", color.sharpness, lambda m: 0.03 * m,
                 cpu="cpu.color:sharpness", onnx="onnx.color:sharpness"),
    _move("cutout", geometry.cutout, lambda m: m / 60, "of the width", draws=("x", "y"),
          cpu="cpu.moves:cutout"),
    # ImageNet's list in appendix A has these two in addition.
    _point("invert", color.invert, _no_value, "none", trend=0, identity_at_zero=False),
    Transform("equalize", color.equalize, _no_value, "none", trend=0, identity_at_zero=False,
              cpu="cpu.color:equalize", onnx="onnx.color:equalize"),
    # How an ImageNet sub-policy starts.
    _scale_crop("scale_crop_flip", geometry.flipping(geometry.scale_crop), draws=(*_BOX, "flip")),
    _scale_crop("scale_crop", geometry.scale_crop, draws=_BOX),
    # The usual random resized crop, for the random-crops baseline: any area from the value to 1.
    _scale_crop("resized_crop_flip", geometry.flipping(geometry.resized_crop),
                draws=(*_BOX, "flip")),
    _scale_crop("resized_crop", geometry.resized_crop, draws=_BOX),
    # How a CIFAR sub-policy ends; the magnitude is the padding in pixels.
    _crop("crop_flip", geometry.flipping(geometry.crop), draws=("x", "y", "flip"),
          identity_at_zero=False, cpu="cpu.moves:crop"),
    _crop("crop", geometry.crop, draws=("x", "y"), cpu="cpu.moves:crop"),
    # The same padded by reflection, as torchvision's padding_mode="reflect".
    _crop("reflect_crop_flip", geometry.flipping(geometry.reflect_crop), draws=("x", "y", "flip"),
          identity_at_zero=False, cpu="cpu.moves:reflect_crop"),
    _crop("reflect_crop", geometry.reflect_crop, draws=("x", "y"), cpu="cpu.moves:reflect_crop"),
    # For the usual baselines: mirror images, quarter turns and enlarged crops.
    _move("flip", geometry.flip, _no_value, "none", trend=0, identity_at_zero=False,
          cpu="cpu.moves:flip"),
    _move("quarter_turn", geometry.quarter_turn, lambda m: m, "quarter turns"),
    Transform("zoom", geometry.zoom, lambda m: max(0.125, 1 - m / 60), "of the side", trend=-1,
              draws=("x", "y"), cpu="cpu.resize:zoom", onnx="onnx.geometry:zoom",
              full_size="full_images:zoom", onnx_full_size="onnx.photos:zoom"),
)
# fmt: on


TRANSFORMS = Table("transform", (replace(row, kernel=checked(row.kernel)) for row in _ROWS))
"""All transforms by name."""


def register_transform(
    name: str,
    function: OwnKernel,
    *,
    value: Callable[[float], float] = float,
    unit: str = "magnitude",
    trend: int = 1,
    signed: bool = False,
    draws: Sequence[str] = (),
    identity_at_zero: bool = False,
) -> OwnKernel:
    """Add a transform of your own, for recipes, policies and `relook.TTA` to use by its name.

    `function(images, values)` takes uint8 images `[n, c, h, w]` and float64 values `[n]`, and
    returns new images of the same shape and type. Each depends only on its own image and value;
    the function draws nothing at random. `value` turns a magnitude (0 … 60) into a value in the
    transform's `unit`, which moves with it by `trend` (+1, −1, or 0: there is no strength); the
    value of a `signed` transform may be negative. `draws` names what is drawn for each view
    (from `relook.transforms.DRAWS`), which the function gets by keyword, `[n]` each.
    `identity_at_zero` says that a magnitude of 0 changes nothing.
    `relook.testing.check_transform` checks all this. Returns the function.
    """
    TRANSFORMS.add(
        own_transform(
            name,
            function,
            value=value,
            unit=unit,
            trend=trend,
            signed=signed,
            draws=draws,
            identity_at_zero=identity_at_zero,
            origin=f"{calling_module()}:{name}",
        )
    )
    return function


def own_transform(
    name: str, function: Kernel, *, draws: Sequence[str] = (), **row: Any
) -> Transform:
    """Return the row of a user's transform, whose results are checked."""
    check_names("draw", draws, DRAWS)
    row = {"value": float, "unit": "magnitude", "identity_at_zero": False, **row}
    return Transform(name, checked_own(name, function), draws=tuple(draws), **row)
