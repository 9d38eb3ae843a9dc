"""What is done to every image of a data set: the resize and the centre crop, Pillow's."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Levels = NDArray[np.uint8]
Size = tuple[int, int]
"""Height and width, in pixels."""

_NAMES = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
INTERPOLATIONS = {name: Image.Resampling[name.upper()] for name in _NAMES}
LARGEST = 3.5
"""Sides are kept up to this many times the input's: a crop of 8 % of the area loses nothing."""
MOST_PIXELS = 80_000_000
"""The largest image that is decoded: a few bytes of file can declare any size."""


@dataclass(frozen=True)
class CentreCrop:
    """What is done to an image, by its own size alone, whatever others are beside it.

    `crop` is the share of the resized image that the centre keeps. An image that has the size
    already is taken as it is, unless `every` image is to be resized and cropped. `full_size` says
    that views which start with a crop are cut from the image itself, before all that.
    """

    size: Size
    crop: float
    channels: int
    interpolation: str = "bicubic"
    every: bool = False
    full_size: bool = False

    def changes(self, size: Size) -> bool:
        """Whether an image of a size is resized and cropped."""
        return self.every or size != self.size

    def described(self, sizes: Iterable[Size]) -> str:
        """Return what images of these sizes become, in words."""
        if not any(map(self.changes, sizes)):
            return str(self)
        return f"{self} (resized, {self.interpolation}; the centre crop keeps {self.crop:g})"

    def __str__(self) -> str:
        return f"{self.channels}×{self.size[0]}×{self.size[1]}"


def centre_view(image: Image.Image, plan: CentreCrop) -> Image.Image:
    """Resize to the plan's size over its crop share, keeping proportions, and cut the centre."""
    image = resized(image, plan)
    top, left = (
        round((side - wanted) / 2)
        for side, wanted in zip((image.height, image.width), plan.size, strict=True)
    )
    return image.crop((left, top, left + plan.size[1], top + plan.size[0]))


def resized(image: Image.Image, plan: CentreCrop) -> Image.Image:
    """Return the whole image, resized so that the plan's size is the share `crop` of it."""
    height, width = resized_size((image.height, image.width), plan)
    return image.resize((width, height), INTERPOLATIONS[plan.interpolation])


def resized_size(size: Size, plan: CentreCrop) -> Size:
    """Return what an image's size becomes before the crop; a ValueError says why it cannot."""
    if not plan.changes(size):
        return size
    height, width = (math.floor(side / plan.crop) for side in plan.size)
    if height * size[1] >= width * size[0]:
        width = max(width, height * size[1] // size[0])
    else:
        height = max(height, width * size[0] // size[1])
    if height * width > MOST_PIXELS:
        raise ValueError(f"it is too long and thin: {size[0]}×{size[1]}")
    return height, width


def kept_size(size: Size, plan: CentreCrop) -> Size:
    """Return the height and width that an image is kept at, to cut crops from it."""
    scale = max(LARGEST * wanted / side for wanted, side in zip(plan.size, size, strict=True))
    if scale >= 1:
        return size
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
