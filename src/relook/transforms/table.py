"""The one table of transforms: kernel, magnitude map, draws, sidedness and forms, row by row.

The magnitude maps are those of the paper's appendix A; rows that the paper does not list
say where they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

from torch import Tensor

from relook.foundation.registry import by_name
from relook.transforms import color, geometry, mask

Kernel = Callable[..., Tensor]

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
    that numba and onnx are imported only where they are used. `cpu` is the compiled form, for
    which the kernel serves too; `onnx` writes the transform into a graph, without which it cannot
    be exported to ONNX; `full_size` cuts the view from an image larger than the model's input.
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


@cache
def load_form(name: str) -> Callable[..., Any]:
    """Return the function that a row names as `module:function`."""
    module, function = name.split(":")
    found: Callable[..., Any] = getattr(import_module(f"relook.transforms.{module}"), function)
    return found


def _solarize_threshold(m: float) -> float:
    return 256 - 64 / 15 * m


def _nothing(_: float) -> float:
    return 0.0


def _scale(m: float) -> float:
    return max(0.08, 0.99 - 0.91 * m / 30)


# Forms that are read off the kernel: of what looks at a pixel's grey level alone, or only moves
# pixels and blackens some.
_BY_LEVEL = "cpu.points:by_level"
ONNX_LEVELS, ONNX_MOVES = "onnx.read_off:levels", "onnx.read_off:moves"

_ROWS = (
    Transform(
        "identity", color.identity, _nothing, "none", trend=0, cpu=_BY_LEVEL, onnx=ONNX_LEVELS
    ),
    Transform(
        "shear_x",
        geometry.shear_x,
        lambda m: m / 60,
        "width/height",
        draws=("sign", "edge"),
        cpu="cpu.shear:shear_x",
        onnx="onnx.warps:shear_x",
    ),
    Transform(
        "shear_y",
        geometry.shear_y,
        lambda m: m / 60,
        "height/width",
        draws=("sign", "edge"),
        cpu="cpu.shear:shear_y",
        onnx="onnx.warps:shear_y",
    ),
    Transform(
        "translate_x",
        geometry.translate_x,
        lambda m: 0.015 * m,
        "of the width",
        draws=("sign",),
        cpu="cpu.moves:translate_x",
        onnx=ONNX_MOVES,
    ),
    Transform(
        "translate_y",
        geometry.translate_y,
        lambda m: 0.015 * m,
        "of the height",
        draws=("sign",),
        cpu="cpu.moves:translate_y",
        onnx=ONNX_MOVES,
    ),
    Transform(
        "rotate",
        geometry.rotate,
        lambda m: 4 / 3 * m,
        "degrees",
        draws=("sign",),
        cpu="cpu.rotate:rotate",
        onnx="onnx.warps:rotate",
    ),
    Transform(
        "autocontrast",
        color.autocontrast,
        lambda m: m / 3,
        "% cut off",
        identity_at_zero=False,
        cpu="cpu.points:autocontrast",
        onnx="onnx.points:autocontrast",
    ),
    Transform(
        "solarize",
        color.solarize,
        _solarize_threshold,
        "grey level",
        trend=-1,
        cpu=_BY_LEVEL,
        onnx=ONNX_LEVELS,
    ),
    Transform(
        "solarize_add",
        color.solarize_add,
        _solarize_threshold,
        "grey level",
        trend=-1,
        cpu=_BY_LEVEL,
        onnx=ONNX_LEVELS,
    ),
    Transform(
        "posterize",
        color.posterize,
        lambda m: max(0.0, 8 - 0.2 * m),
        "bits",
        trend=-1,
        cpu=_BY_LEVEL,
        onnx=ONNX_LEVELS,
    ),
    Transform(
        "contrast",
        color.contrast,
        lambda m: 2 / 75 * m,
        "change of factor",
        signed=True,
        cpu="cpu.points:contrast",
        onnx="onnx.points:contrast",
    ),
    Transform(
        "brightness",
        color.brightness,
        lambda m: 2 / 75 * m,
        "change of factor",
        signed=True,
        cpu=_BY_LEVEL,
        onnx=ONNX_LEVELS,
    ),
    Transform(
        "color",
        color.color,
        lambda m: 0.03 * m,
        "change of factor",
        signed=True,
        cpu="cpu.blends:color",
        onnx="onnx.points:color",
    ),
    Transform(
        "sharpness",
        color.sharpness,
        lambda m: 0.03 * m,
        "change of factor",
        signed=True,
        cpu="cpu.blends:sharpness",
        onnx="onnx.points:sharpness",
    ),
    Transform(
        "cutout",
        mask.cutout,
        lambda m: m / 60,
        "of the width",
        draws=("x", "y"),
        cpu="cpu.moves:cutout",
        onnx=ONNX_MOVES,
    ),
    # ImageNet's list has these two besides (appendix A).
    Transform(
        "invert",
        color.invert,
        _nothing,
        "none",
        trend=0,
        identity_at_zero=False,
        cpu=_BY_LEVEL,
        onnx=ONNX_LEVELS,
    ),
    Transform(
        "equalize",
        color.equalize,
        _nothing,
        "none",
        trend=0,
        identity_at_zero=False,
        cpu="cpu.points:equalize",
        onnx="onnx.points:equalize",
    ),
    # How an ImageNet sub-policy starts.
    Transform(
        "scale_crop_flip",
        geometry.scale_crop_flip,
        _scale,
        "of the area",
        trend=-1,
        draws=("area", "aspect", "x", "y", "flip"),
        identity_at_zero=False,
        cpu="cpu.resize:scale_crop",
        onnx="onnx.resize:scale_crop",
        full_size="full_views:scale_crop",
    ),
    Transform(
        "scale_crop",
        geometry.scale_crop,
        _scale,
        "of the area",
        trend=-1,
        draws=("area", "aspect", "x", "y"),
        identity_at_zero=False,
        cpu="cpu.resize:scale_crop",
        onnx="onnx.resize:scale_crop",
        full_size="full_views:scale_crop",
    ),
    # How a CIFAR sub-policy ends; the magnitude is the padding in pixels.
    Transform(
        "crop_flip",
        geometry.crop_flip,
        lambda m: m,
        "pixels",
        draws=("x", "y", "flip"),
        identity_at_zero=False,
        cpu="cpu.moves:crop",
        onnx=ONNX_MOVES,
    ),
    Transform(
        "crop",
        geometry.crop,
        lambda m: m,
        "pixels",
        draws=("x", "y"),
        cpu="cpu.moves:crop",
        onnx=ONNX_MOVES,
    ),
    # What the usual baselines need: mirror images, quarter turns and enlarged crops.
    Transform(
        "flip",
        geometry.flip,
        _nothing,
        "none",
        trend=0,
        identity_at_zero=False,
        cpu="cpu.moves:flip",
        onnx=ONNX_MOVES,
    ),
    Transform("quarter_turn", geometry.quarter_turn, lambda m: m, "quarter turns", onnx=ONNX_MOVES),
    Transform(
        "zoom",
        geometry.zoom,
        lambda m: max(0.125, 1 - m / 60),
        "of the side",
        trend=-1,
        draws=("x", "y"),
        cpu="cpu.resize:zoom",
        onnx="onnx.resize:zoom",
        full_size="full_views:zoom",
    ),
)


_TABLE = dict(by_name(_ROWS))
TRANSFORMS: Mapping[str, Transform] = MappingProxyType(_TABLE)
"""All transforms by name."""


@contextmanager
def registered(row: Transform) -> Iterator[None]:
    """Have one more transform for the time of a `with` block."""
    _TABLE.update(by_name([*_TABLE.values(), row]))
    try:
        yield
    finally:
        del _TABLE[row.name]
