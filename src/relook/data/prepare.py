"""Brings images of any size and mode to arrays of one size, by one plan for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from relook.data.base import Dataset
from relook.errors import RelookError, unknown_name
from relook.foundation.memory import half_of_memory
from relook.transforms.centre_crop import INTERPOLATIONS, CentreCrop, Size, centre_view
from relook.transforms.centre_crop import Levels as Levels
from relook.transforms.checks import SMALLEST_SIDE
from relook.transforms.full_images import FullImages

DEFAULT_CROP = 0.875
_DEEP_MODES = ("I", "I;16", "I;16L", "I;16B", "I;16N")
GREY_MODES = ("1", "L", "LA", "La", *_DEEP_MODES)
_LARGEST_SIDE = 8_192
_HIGHEST_LEVEL = 65_535


@dataclass(frozen=True)
class Preparation:
    """How the images of a source are prepared, as the user or the model wants it.

    `size` is (height, width) in pixels, `channels` 1 or 3; None leaves the choice to the images.
    `crop` is the share of the resized image that the centre crop keeps, of every image; None
    means `usual_crop`, and images that have the size already stay as they are.
    `skip_bad` leaves out unreadable files instead of raising. `full_size` keeps files larger than
    the input, so that crops are cut from the originals: in memory, in a directory `cache` where
    later calls find them, or, if there are too many for the memory, in `overflow` (default: a
    temporary file). `outputs` is the number of the model's classes, if the data's must equal it.
    `log` gets lines for people; `progress` gets the stage, the files done and their number.
    """

    size: Size | None = None
    crop: float | None = None
    usual_crop: float = DEFAULT_CROP
    interpolation: str = "bicubic"
    channels: int | None = None
    skip_bad: bool = False
    full_size: bool = False
    cache: Path | None = None
    overflow: Path | None = None
    outputs: int | None = None
    log: Callable[[str], None] | None = None
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
        """Fill in what the user left open from the model's `input`, if it has one."""
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

    def as_searched(self, plan: CentreCrop | None) -> Preparation:
        """Fill in what the user left open as a search prepared images of this size."""
        if plan is None or self.size not in (None, plan.size):
            return self
        return replace(
            self,
            size=plan.size,
            crop=self.crop or (plan.crop if plan.every else None),
            usual_crop=plan.crop,
            interpolation=plan.interpolation,
        )

    def plan(self, size: Size, channels: int) -> CentreCrop:
        """Return the plan that brings images to this size."""
        crop = self.crop or self.usual_crop
        return CentreCrop(size, crop, channels, self.interpolation, every=self.crop is not None)


def make_plan(sizes: Iterable[Size], grey: bool, wanted: Preparation, where: str) -> CentreCrop:
    """Return the plan for images of these sizes; `grey` says whether all are grey."""
    found = set(sizes)
    target = wanted.size or (next(iter(found)) if len(found) == 1 else None)
    if target is None:
        low, high = min(found, key=math.prod), max(found, key=math.prod)
        raise RelookError(
            f"{where}: expected images of one size, got {len(found)} sizes from "
            f"{low[0]}×{low[1]} to {high[0]}×{high[1]} (height × width): give a size, such as 224"
        )
    channels = wanted.channels or (1 if grey else 3)
    return wanted.plan(target, channels)


def to_array(image: Image.Image, plan: CentreCrop) -> Levels:
    """Return a loaded image prepared by the plan, uint8 `[c, h, w]`; ValueError if that fails."""
    image = in_mode(image, "L" if plan.channels == 1 else "RGB")
    return _levels(centre_view(image, plan))


def own_levels(image: Image.Image) -> Levels:
    """Return a loaded image as it is, uint8 `[c, h, w]`, grey or in colour."""
    return _levels(in_mode(image, "L" if is_grey(image) else "RGB"))


def _levels(image: Image.Image) -> Levels:
    levels = np.asarray(image)
    return levels[None] if levels.ndim == 2 else np.moveaxis(levels, 2, 0)


def in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return an image in mode `L` or `RGB`, on black where it is transparent."""
    if image.mode in _DEEP_MODES:
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
    """Whether an image has one channel of grey, besides transparency."""
    return image.mode in GREY_MODES


def check_memory(images: int, plan: CentreCrop, where: str) -> int:
    """Return how many bytes the images take; raise if more than half of the machine's memory."""
    nbytes = images * plan.channels * math.prod(plan.size)
    half = half_of_memory()
    if nbytes > half:
        raise RelookError(
            f"{where}: {images:,} images of {plan} take {nbytes / 1e9:.1f} GB, more than half of "
            f"this machine's memory ({half / 1e9:.1f} GB): give a smaller size or fewer images"
        )
    return nbytes


def fitted(dataset: Dataset, wanted: Preparation) -> Dataset:
    """Bring images in memory to the wanted size and channels."""
    if isinstance(dataset.images, FullImages):
        raise AssertionError("full-size images come prepared")
    _, channels, height, width = dataset.images.shape
    plan = make_plan([(height, width)], channels == 1, wanted, dataset.name)
    if not plan.changes((height, width)) and plan.channels == channels:
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
    """Keep the high byte, as Pillow does with colour images of 16 bits."""
    levels = np.asarray(image).astype(np.int64)
    low, high = int(levels.min()), int(levels.max())
    if low < 0 or high > _HIGHEST_LEVEL:
        raise ValueError(f"its levels go from {low} to {high}: save it as 8 or 16 bits")
    return Image.fromarray((levels >> 8).astype(np.uint8))
