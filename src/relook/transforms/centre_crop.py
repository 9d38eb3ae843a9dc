"""The plan that brings images to a model's input: Pillow's resize and the centre crop."""

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
"""Sides are kept at up to this multiple of the input's, so that a crop of 8 % loses nothing."""
MOST_PIXELS = 80_000_000
"""The most pixels that are decoded, as a few bytes of file can declare any size."""


@dataclass(frozen=True)
class CentreCrop:
    """How an image becomes a model's input; this depends on its own size only.

    `crop` is the share of the resized image that the centre keeps. An image that has the size
    already stays as it is, unless `every` image is resized and cropped. With `full_size`, views
    that start with a crop are cut from the original image instead.
    """

    size: Size
    crop: float
    channels: int
    interpolation: str = "bicubic"
    every: bool = False
    full_size: bool = False

    def changes(self, size: Size) -> bool:
        """Whether an image of this size is resized and cropped."""
        return self.every or size != self.size

    def described(self, sizes: Iterable[Size]) -> str:
        """Return a description of what images of these sizes become."""
        if not any(map(self.changes, sizes)):
            return str(self)
        return f"{self} (resized, {self.interpolation}; the centre crop keeps {self.crop:g})"

    def __str__(self) -> str:
        return f"{self.channels}×{self.size[0]}×{self.size[1]}"


def centre_view(image: Image.Image, plan: CentreCrop) -> Image.Image:
    """Resize an image by the plan, keeping proportions, and cut out the centre."""
    image = resized(image, plan)
    top, left = (
        round((side - wanted) / 2)
        for side, wanted in zip((image.height, image.width), plan.size, strict=True)
    )
    return image.crop((left, top, left + plan.size[1], top + plan.size[0]))


def resized(image: Image.Image, plan: CentreCrop) -> Image.Image:
    """Return the whole image, resized so that the plan's size is its share `crop`."""
    height, width = resized_size((image.height, image.width), plan)
    return image.resize((width, height), INTERPOLATIONS[plan.interpolation])


def resized_size(size: Size, plan: CentreCrop) -> Size:
    """Return the size that an image is resized to before the crop; ValueError if too large."""
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
    """Return the height and width at which an image is kept to cut crops from it."""
    scale = max(LARGEST * wanted / side for wanted, side in zip(plan.size, size, strict=True))
    if scale >= 1:
        return size
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
