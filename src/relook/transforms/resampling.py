"""Boxes of whole pixels, and Pillow's weights to resize them, for every backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import PIL
from numpy.typing import NDArray

from relook.transforms.steps import AppliedStep, Floats, Numbers

Aspect = TypeVar("Aspect", float, Floats)

BITS = 22
"""The fractional bits of Pillow's fixed point for 8-bit resizing."""
DOWN_FIRST = int(PIL.__version__.split(".")[0]) >= 13
"""Whether this Pillow resizes down before across if the height shrinks most."""


@dataclass(frozen=True)
class Box:
    """A box of whole pixels: left and top edge, width and height."""

    left: int
    top: int
    width: int
    height: int


def crop_box(width: int, height: int, share: float, aspect: float, x: float, y: float) -> Box:
    """Return the box of a share of an image's area.

    A box that does not fit keeps its area and gets the nearest aspect that fits.
    """
    pixels, ratio = width * height * share, aspect_ratio(aspect)
    across, down = math.sqrt(pixels * ratio), math.sqrt(pixels / ratio)
    if across > width:
        across, down = width, pixels / width
    elif down > height:
        across, down = pixels / height, height
    return placed_box(width, height, across, down, x, y)


def aspect_ratio(aspect: Aspect) -> Aspect:
    """Return width over height: from 3/4 (aspect 0) to 4/3 (aspect 1), by logarithm."""
    ratio: Aspect = 0.75 * (16 / 9) ** aspect
    return ratio


def aspect_of(ratio: Floats) -> Floats:
    """Return the aspect of a width over height; outside 0 … 1 if that is out of range."""
    return np.log(ratio / 0.75) / math.log(16 / 9)


def _narrow_share(value: Numbers, area: Numbers) -> Numbers:
    return (value + 0.01 * area).clip(max=1.0)


def _wide_share(value: Numbers, area: Numbers) -> Numbers:
    return value + (1.0 - value) * area


CROP_SHARES: Mapping[str, Callable[[Any, Any], Any]] = MappingProxyType(
    {
        "scale_crop": _narrow_share,
        "scale_crop_flip": _narrow_share,
        "resized_crop": _wide_share,
        "resized_crop_flip": _wide_share,
    }
)
"""Functions of a crop's value and its draw `area`, both `[n]`, to the share of the area kept."""


def zoomed_box(width: int, height: int, share: float, x: float, y: float) -> Box:
    """Return the box of `zoom` for one image."""
    return placed_box(width, height, share * width, share * height, x, y)


def placed_box(
    width: int, height: int, box_width: float, box_height: float, x: float, y: float
) -> Box:
    """Round a box to whole pixels within the image and place it: 0 left (top), 1 right."""
    across = round(min(max(box_width, 1.0), width))
    down = round(min(max(box_height, 1.0), height))
    left = min(math.floor(x * (width - across + 1)), width - across)
    top = min(math.floor(y * (height - down + 1)), height - down)
    return Box(left, top, across, down)


def goes_down_first(height: int, width: int, new_height: int, new_width: int) -> bool:
    """Whether Pillow resizes down before across, as it does if the height loses most pixels."""
    lost = height - new_height
    return DOWN_FIRST and lost > 0 and lost > 2 * (width - new_width)


def boxes_of(make: Callable[..., Box], width: int, height: int, *numbers: Numbers) -> list[Box]:
    """Return each image's box from numbers `[n]`; equal boxes, as of fixed draws, are made once."""
    rows = list(zip(*(each.tolist() for each in numbers), strict=True))
    made = {row: make(width, height, *row) for row in set(rows)}
    return [made[row] for row in rows]


def crop_boxes(step: AppliedStep, width: int, height: int) -> list[Box]:
    """Return each image's box of `scale_crop` and the like."""
    draws = step.draws
    shares = CROP_SHARES[step.transform](step.values, draws["area"])
    return boxes_of(crop_box, width, height, shares, draws["aspect"], draws["x"], draws["y"])


@lru_cache(maxsize=2048)
def resize_taps(
    length: int, size: int, interpolation: str = "bicubic"
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return each new pixel's first tap `[size]` and the weights in fixed point `[tap, size]`.

    `first + tap` may be past the end; the weight is zero there.
    """
    support, kernel = KERNELS[interpolation]
    scale = length / size
    reach = max(scale, 1.0)
    centre = (np.arange(size) + 0.5) * scale
    first = np.maximum(np.trunc(centre - support * reach + 0.5), 0)
    end = np.minimum(np.trunc(centre + support * reach + 0.5), length)
    taps = first + np.arange(int((end - first).max()))[:, None]
    weights = np.where(taps < end, kernel((taps - centre + 0.5) * (1.0 / reach)), 0.0)
    total = np.zeros(size)
    for weight in weights:  # one by one and in order, as Pillow does
        total = total + weight
    scaled = weights / total * (1 << BITS)
    fixed = (scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32)
    used = (
        int(np.flatnonzero(fixed.any(axis=1))[-1]) + 1
    )  # the kernel's last taps may have no weight
    return first.astype(np.int64), fixed[:used]


def _bicubic(distance: Floats) -> Floats:
    """Return the cubic kernel with a = −0.5."""
    t = np.abs(distance)
    near = (1.5 * t - 2.5) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * -0.5
    return np.where(t < 1.0, near, np.where(t < 2.0, far, 0.0))


def _bilinear(distance: Floats) -> Floats:
    return np.maximum(1.0 - np.abs(distance), 0.0)


def _box(distance: Floats) -> Floats:
    return np.where((distance > -0.5) & (distance <= 0.5), 1.0, 0.0)


def _hamming(distance: Floats) -> Floats:
    t = np.abs(distance)
    return np.where(t < 1.0, np.sinc(t) * (0.54 + 0.46 * np.cos(t * math.pi)), 0.0)


def _lanczos(distance: Floats) -> Floats:
    inside = (distance >= -3.0) & (distance < 3.0)
    return np.where(inside, np.sinc(distance) * np.sinc(distance / 3), 0.0)


KERNELS = MappingProxyType(
    {
        "bicubic": (2.0, _bicubic),
        "bilinear": (1.0, _bilinear),
        "box": (0.5, _box),
        "hamming": (1.0, _hamming),
        "lanczos": (3.0, _lanczos),
    }
)
"""Pillow's resampling kernels by name, each with its reach."""
