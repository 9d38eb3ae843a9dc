"""Images of any size and mode become arrays of one size: the plan for all, applied to each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from relook.data.base import Dataset
from relook.errors import RelookError, unknown_name
from relook.transforms.checks import SMALLEST_SIDE

Levels = NDArray[np.uint8]
Size = tuple[int, int]
"""Height and width, in pixels."""

DEFAULT_CROP = 0.875
GREY_MODES = ("1", "L", "LA", "La", "I", "I;16", "I;16L", "I;16B", "I;16N")
INTERPOLATIONS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
    "hamming": Image.Resampling.HAMMING,
}
MOST_PIXELS = 80_000_000
"""The largest image that is decoded: a few bytes of file can declare any size."""

_LARGEST_SIDE = 8_192
_DEEPEST = 65_535


@dataclass(frozen=True)
class Preparation:
    """What a user, or the model, says about the images that a source yields.

    `size` is (height, width) in pixels, `channels` 1 or 3; None leaves the choice to the images.
    `crop` is the share of the resized image that the centre crop keeps; None means
    `usual_crop` where images have to be resized, and no change where all have the size already.
    `skip_bad` leaves files out that cannot be read, instead of stopping. `tell` gets lines for
    people, `progress` the stage, the files done and their number.
    """

    size: Size | None = None
    crop: float | None = None
    usual_crop: float = DEFAULT_CROP
    interpolation: str = "bicubic"
    channels: int | None = None
    skip_bad: bool = False
    tell: Callable[[str], None] | None = None
    progress: Callable[[str, int, int], None] | None = None

    def __post_init__(self) -> None:
        for side in self.size or ():
            if not SMALLEST_SIDE <= side <= _LARGEST_SIDE:
                raise RelookError(
                    f"expected an image size from {SMALLEST_SIDE} to {_LARGEST_SIDE} pixels, "
                    f"got {side}"
                )
        for crop in (self.crop, self.usual_crop):
            if crop is not None and not 0.05 <= crop <= 1:
                raise RelookError(f"expected a crop share from 0.05 to 1, got {crop!r}")
        if self.channels not in (None, 1, 3):
            raise RelookError(f"expected 1 or 3 channels, got {self.channels!r}")
        if self.interpolation not in INTERPOLATIONS:
            raise unknown_name("interpolation", self.interpolation, INTERPOLATIONS)

    def for_model(self, model: object) -> Preparation:
        """Fill in what the model's `input` says, where it has one and the user said nothing."""
        wanted = getattr(model, "input", None)
        if wanted is None:
            return self
        return replace(
            self,
            size=self.size or wanted.size,
            usual_crop=wanted.crop,
            channels=self.channels or wanted.channels,
            interpolation=wanted.interpolation,
        )


@dataclass(frozen=True)
class Plan:
    """What is done to every image of a data set.

    `crop` is None where all images have the size already and are taken as they are.
    """

    size: Size
    crop: float | None
    channels: int
    interpolation: str = "bicubic"

    def __str__(self) -> str:
        text = f"{self.channels}×{self.size[0]}×{self.size[1]}"
        if self.crop is None:
            return text
        return f"{text} (resized, {self.interpolation}; the centre crop keeps {self.crop:g})"


def make_plan(sizes: Iterable[Size], grey: bool, wanted: Preparation, where: str) -> Plan:
    """Decide what all images become; `grey` says whether every one of them is."""
    found = set(sizes)
    target = wanted.size or (next(iter(found)) if len(found) == 1 else None)
    if target is None:
        low, high = min(found, key=math.prod), max(found, key=math.prod)
        raise RelookError(
            f"{where}: expected images of one size, got {len(found)} sizes from "
            f"{low[0]}×{low[1]} to {high[0]}×{high[1]} (height × width): give --size, as 224"
        )
    channels = wanted.channels or (1 if grey else 3)
    usual = None if found == {target} else wanted.usual_crop
    return Plan(target, wanted.crop or usual, channels, wanted.interpolation)


def to_array(image: Image.Image, plan: Plan) -> Levels:
    """Return a loaded image as the plan wants it, uint8 `[c, h, w]`; a ValueError says why not."""
    image = in_mode(image, "L" if plan.channels == 1 else "RGB")
    if plan.crop is not None:
        image = _resized(image, plan, plan.crop)
    if (image.height, image.width) != plan.size:
        raise ValueError(f"its size is {image.height}×{image.width}, its head said another")
    levels = np.asarray(image)
    return levels[None] if levels.ndim == 2 else np.moveaxis(levels, 2, 0)


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in `L` or `RGB`; what is transparent shows black."""
    if image.mode in ("I", "I;16", "I;16L", "I;16B", "I;16N"):
        image = _from_16_bits(image)
    elif image.mode == "F":
        raise ValueError("its levels are floating-point numbers: save it as 8 or 16 bits")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        below = Image.new("RGBA", image.size, (0, 0, 0, 255))
        image = Image.alpha_composite(below, image).convert("RGB")
    elif image.mode not in ("L", "RGB"):
        image = image.convert("L" if image.mode in GREY_MODES else "RGB")
    return image if image.mode == mode else image.convert(mode)


def is_grey(image: Image.Image) -> bool:
    """Whether an image has one channel of grey, beside transparency."""
    return image.mode in GREY_MODES


def check_memory(images: int, plan: Plan, where: str) -> int:
    """Return how many bytes the images take; more than half of the machine's memory raises."""
    nbytes = images * plan.channels * math.prod(plan.size)
    half = half_of_memory()
    if nbytes > half:
        raise RelookError(
            f"{where}: {images:,} images of {plan} take {nbytes / 1e9:.1f} GB, more than half of "
            f"this machine's memory ({half / 1e9:.1f} GB): give a smaller --size or fewer images"
        )
    return nbytes


def half_of_memory() -> int:
    """Return half of this machine's memory, in bytes: the most that a data set may take."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def fitted(dataset: Dataset, wanted: Preparation) -> Dataset:
    """Bring images that are in memory to the size and channels that are asked for."""
    _, channels, height, width = dataset.images.shape
    plan = make_plan([(height, width)], channels == 1, wanted, dataset.name)
    if plan.crop is None and plan.channels == channels:
        return dataset
    check_memory(len(dataset), plan, dataset.name)
    images = torch.empty((len(dataset), plan.channels, *plan.size), dtype=torch.uint8)
    target = images.numpy()
    for i, levels in enumerate(dataset.images.numpy()):
        target[i] = to_array(from_levels(levels), plan)
    return replace(dataset, images=images)


def from_levels(levels: Levels) -> Image.Image:
    """Return uint8 levels `[c, h, w]` as an image."""
    return Image.fromarray(levels[0] if len(levels) == 1 else np.moveaxis(levels, 0, 2).copy())


def _from_16_bits(image: Image.Image) -> Image.Image:
    """Keep the high byte, as Pillow itself does with colour images of 16 bits."""
    levels = np.asarray(image).astype(np.int64)
    low, high = int(levels.min()), int(levels.max())
    if low < 0 or high > _DEEPEST:
        raise ValueError(f"its levels go from {low} to {high}: save it as 8 or 16 bits")
    return Image.fromarray((levels >> 8).astype(np.uint8))


def _resized(image: Image.Image, plan: Plan, crop: float) -> Image.Image:
    """Resize to the plan's size over the crop share, keeping proportions, and cut the centre."""
    height, width = (math.floor(side / crop) for side in plan.size)
    if height * image.width >= width * image.height:
        width = max(width, height * image.width // image.height)
    else:
        height = max(height, width * image.height // image.width)
    if height * width > MOST_PIXELS:
        raise ValueError(f"it is too long and thin: {image.height}×{image.width}")
    image = image.resize((width, height), INTERPOLATIONS[plan.interpolation])
    top, left = round((height - plan.size[0]) / 2), round((width - plan.size[1]) / 2)
    return image.crop((left, top, left + plan.size[1], top + plan.size[0]))
