"""Images of many shapes, kept larger than a model's input, for views that are cut from them."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.transforms.centre_crop import CentreCrop, Levels
from relook.transforms.resampling import Box

Which = slice | Sequence[int] | NDArray[np.integer[Any]] | Tensor


@dataclass(frozen=True, eq=False)
class FullImages:
    """Images of many shapes, and the plan by which each becomes a model's input.

    `pixels` holds one after another, uint8 `[h, w, c]` each, in memory or mapped from a file.
    Image i starts at `starts[i]` and has the height and width `shapes[i]`; `fingerprints[i]` stands
    for its content. A part of the images shares the pixels of the whole.
    """

    pixels: Levels
    starts: NDArray[np.int64]
    shapes: NDArray[np.int64]
    fingerprints: NDArray[np.str_]
    plan: CentreCrop

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the views that are made of them: `[n, c, h, w]`."""
        return (len(self), self.plan.channels, *self.plan.size)

    @property
    def content(self) -> list[object]:
        """What the images hold and how they are shown, to take a fingerprint of."""
        plan = self.plan
        shown = [list(plan.size), plan.crop, plan.channels, plan.interpolation]
        return ["full-size images", self.fingerprints.tolist(), shown]

    def __getitem__(self, which: Which) -> FullImages:
        chosen = which if isinstance(which, slice) else np.asarray(which, dtype=np.int64)
        if not isinstance(chosen, slice) and chosen.ndim != 1:
            raise TypeError(f"expected a slice or places [n], got {which!r}")
        return replace(
            self,
            starts=self.starts[chosen],
            shapes=self.shapes[chosen],
            fingerprints=self.fingerprints[chosen],
        )

    def levels(self, place: int) -> Levels:
        """Return one image, uint8 `[h, w, c]`, without a copy."""
        start = int(self.starts[place])
        height, width = (int(side) for side in self.shapes[place])
        end = start + height * width * self.plan.channels
        return self.pixels[start:end].reshape(height, width, self.plan.channels)

    def compact(self) -> FullImages:
        """Return these images with a copy of their own pixels alone, to be sent elsewhere."""
        levels = [self.levels(place).reshape(-1) for place in range(len(self))]
        ends = np.cumsum([len(each) for each in levels], dtype=np.int64)
        starts = np.concatenate([[0], ends[:-1]]).astype(np.int64)
        return replace(self, pixels=np.concatenate(levels), starts=starts)

    def picture(self, place: int, box: Box | None = None) -> Image.Image:
        """Return one image, or a box of it, for Pillow to work on."""
        levels = self.levels(place)
        if box is not None:
            levels = levels[box.top : box.top + box.height, box.left : box.left + box.width]
        return Image.fromarray(
            np.ascontiguousarray(levels if levels.shape[2] == 3 else levels[..., 0])
        )

    def release(self) -> None:
        """Let go of the memory of what was read from a file; it stays in the system's cache."""
        mapped = self.pixels.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def content_of(images: Tensor | NDArray[np.uint8] | FullImages) -> object:
    """Return what to take a fingerprint of: the images, or what stands for them."""
    return images.content if isinstance(images, FullImages) else images
