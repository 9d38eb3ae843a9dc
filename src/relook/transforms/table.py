"""The one table of transforms: kernel, magnitude map, draws and sidedness, row by row.

The magnitude maps are those of the paper's appendix A; rows that the paper does not list
say where they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType

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
    """

    name: str
    kernel: Kernel
    value: Callable[[float], float]
    unit: str
    trend: int = 1
    draws: tuple[str, ...] = ()
    signed: bool = False
    identity_at_zero: bool = True


def _solarize_threshold(m: float) -> float:
    return 256 - 64 / 15 * m


def _nothing(_: float) -> float:
    return 0.0


_ROWS = (
    Transform("identity", color.identity, _nothing, "none", trend=0),
    Transform(
        "shear_x", geometry.shear_x, lambda m: m / 60, "width/height", draws=("sign", "edge")
    ),
    Transform(
        "shear_y", geometry.shear_y, lambda m: m / 60, "height/width", draws=("sign", "edge")
    ),
    Transform(
        "translate_x", geometry.translate_x, lambda m: 0.015 * m, "of the width", draws=("sign",)
    ),
    Transform(
        "translate_y", geometry.translate_y, lambda m: 0.015 * m, "of the height", draws=("sign",)
    ),
    Transform("rotate", geometry.rotate, lambda m: 4 / 3 * m, "degrees", draws=("sign",)),
    Transform(
        "autocontrast", color.autocontrast, lambda m: m / 3, "% cut off", identity_at_zero=False
    ),
    Transform("solarize", color.solarize, _solarize_threshold, "grey level", trend=-1),
    Transform("solarize_add", color.solarize_add, _solarize_threshold, "grey level", trend=-1),
    Transform("posterize", color.posterize, lambda m: max(0.0, 8 - 0.2 * m), "bits", trend=-1),
    Transform("contrast", color.contrast, lambda m: 2 / 75 * m, "change of factor", signed=True),
    Transform(
        "brightness", color.brightness, lambda m: 2 / 75 * m, "change of factor", signed=True
    ),
    Transform("color", color.color, lambda m: 0.03 * m, "change of factor", signed=True),
    Transform("sharpness", color.sharpness, lambda m: 0.03 * m, "change of factor", signed=True),
    Transform("cutout", mask.cutout, lambda m: m / 60, "of the width", draws=("x", "y")),
    # ImageNet's list has these two besides (appendix A).
    Transform("invert", color.invert, _nothing, "none", trend=0, identity_at_zero=False),
    Transform("equalize", color.equalize, _nothing, "none", trend=0, identity_at_zero=False),
    # How an ImageNet sub-policy starts.
    Transform(
        "scale_crop_flip",
        geometry.scale_crop_flip,
        lambda m: max(0.08, 0.99 - 0.91 * m / 30),
        "of the area",
        trend=-1,
        draws=("area", "aspect", "x", "y", "flip"),
        identity_at_zero=False,
    ),
    Transform(
        "scale_crop",
        geometry.scale_crop,
        lambda m: max(0.08, 0.99 - 0.91 * m / 30),
        "of the area",
        trend=-1,
        draws=("area", "aspect", "x", "y"),
        identity_at_zero=False,
    ),
    # How a CIFAR sub-policy ends; the magnitude is the padding in pixels.
    Transform(
        "crop_flip",
        geometry.crop_flip,
        lambda m: m,
        "pixels",
        draws=("x", "y", "flip"),
        identity_at_zero=False,
    ),
    Transform("crop", geometry.crop, lambda m: m, "pixels", draws=("x", "y")),
    # What the usual baselines need: mirror images, quarter turns and enlarged crops.
    Transform("flip", geometry.flip, _nothing, "none", trend=0, identity_at_zero=False),
    Transform("quarter_turn", geometry.quarter_turn, lambda m: m, "quarter turns"),
    Transform(
        "zoom", geometry.zoom, lambda m: max(0.125, 1 - m / 60), "of the side", -1, ("x", "y")
    ),
)


TRANSFORMS = by_name(_ROWS)
"""All transforms by name."""
