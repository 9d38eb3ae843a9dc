"""Images of many shapes, kept larger than a model's input, and the views that are cut from them.

A view is a crop of the original or of the resized image, or its centre. Pillow does the resizing,
so the bytes are Pillow's by construction; they depend only on the image and its own draws.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.foundation.threads import share_work
from relook.transforms.centre_crop import CentreCrop, Levels, centre_view, resized
from relook.transforms.resampling import CROP_SHARES, Box, crop_box, placed_box
from relook.transforms.steps import AppliedStep
from relook.transforms.table import TRANSFORMS, load_form

_BICUBIC = Image.Resampling.BICUBIC

Which = slice | Sequence[int] | NDArray[np.integer[Any]] | Tensor


@dataclass(frozen=True, eq=False)
class FullImages:
    """Images of many shapes, and the plan by which each becomes a model's input.

    `pixels` holds one after another, uint8 `[h, w, c]` each, in memory or mapped from a file.
    Image i starts at `starts[i]`, has the height and width `shapes[i]` and the fingerprint
    `fingerprints[i]`. A subset shares the pixels of the whole.
    """

    pixels: Levels
    starts: NDArray[np.int64]
    shapes: NDArray[np.int64]
    fingerprints: NDArray[np.str_]
    plan: CentreCrop

    @classmethod
    def of(cls, images: Sequence[Levels], plan: CentreCrop) -> FullImages:
        """Return images `[h, w, c]` joined, with empty fingerprints."""
        sizes = np.array([levels.size for levels in images], dtype=np.int64)
        shapes = np.array([levels.shape[:2] for levels in images], dtype=np.int64).reshape(-1, 2)
        joined = np.concatenate([np.zeros(0, np.uint8), *(levels.reshape(-1) for levels in images)])
        unknown = np.full(len(images), "", "U32")
        return cls(joined, np.cumsum(sizes) - sizes, shapes, unknown, plan)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of the views: `[n, c, h, w]`."""
        return (len(self), self.plan.channels, *self.plan.size)

    @property
    def content(self) -> list[object]:
        """The images' fingerprints and their plan, to be fingerprinted together."""
        plan = self.plan
        fields = [list(plan.size), plan.crop, plan.channels, plan.interpolation, plan.every]
        return ["full-size images", self.fingerprints.tolist(), fields]

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
        """Return these images with a copy of only their own pixels, to be sent elsewhere."""
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
        """Free the memory of pixels mapped from a file; they stay in the system's cache."""
        mapped = self.pixels.base
        if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def content_of(images: Tensor | NDArray[np.uint8] | FullImages) -> object:
    """Return the content to fingerprint: the images, or the fingerprints of full-size ones."""
    return images.content if isinstance(images, FullImages) else images


def open_images(
    images: FullImages, steps: Sequence[AppliedStep]
) -> tuple[Tensor, Sequence[AppliedStep]]:
    """Return uint8 views `[n, c, h, w]` at the input's size, and the steps that remain.

    A first step that crops reads its box from the large image; otherwise the centre view is taken.
    """
    form = TRANSFORMS[steps[0].transform].full_size if steps else None
    if form is None:
        return plain_views(images), steps
    first, cut = steps[0], load_form(form)
    flips = first.draws.get("flip")

    def view(place: int) -> Levels:
        levels = np.asarray(cut(images, place, first))
        return levels[:, ::-1] if flips is not None and flips[place] == 1 else levels

    return _make_views(images, view), steps[1:]


def plain_views(images: Tensor | FullImages) -> Tensor:
    """Return the plain view of each image, uint8 `[n, c, h, w]`: its centre, or itself."""
    if isinstance(images, Tensor):
        return images
    plan = images.plan
    return _make_views(images, lambda place: np.asarray(centre_view(images.picture(place), plan)))


def scale_crop(images: FullImages, place: int, step: AppliedStep) -> Image.Image:
    """Cut a box of the large image and resize it to the input's size."""
    height, width = (int(side) for side in images.shapes[place])
    share = CROP_SHARES[step.transform](step.values[place], step.draws["area"][place])
    aspect, x, y = (float(step.draws[name][place]) for name in ("aspect", "x", "y"))
    box = crop_box(width, height, float(share), aspect, x, y)
    return _resize_to_input(images.picture(place, box), images)


def zoom(images: FullImages, place: int, step: AppliedStep) -> Image.Image:
    """Cut a box of the resized image, a share of the input's sides, anywhere in it."""
    whole = resized(images.picture(place), images.plan)
    share = float(step.values[place])
    height, width = (share * side for side in images.plan.size)
    x, y = (float(step.draws[name][place]) for name in ("x", "y"))
    box = placed_box(whole.width, whole.height, width, height, x, y)
    right, bottom = box.left + box.width, box.top + box.height
    return _resize_to_input(whole.crop((box.left, box.top, right, bottom)), images)


def _resize_to_input(image: Image.Image, images: FullImages) -> Image.Image:
    height, width = images.plan.size
    return image.resize((width, height), _BICUBIC)


def _make_views(images: FullImages, view: Callable[[int], Levels]) -> Tensor:
    """Return `view(place)`, `[h, w, c]`, of every image, made in torch's number of threads."""
    views = torch.empty(images.shape, dtype=torch.uint8)
    rows = views.permute(0, 2, 3, 1).numpy()

    def fill(places: Iterator[int]) -> None:
        for place in places:
            rows[place] = view(place).reshape(rows.shape[1:])

    threads = max(1, min(torch.get_num_threads(), len(images)))
    share_work(fill, range(len(images)), threads)
    images.release()
    return views
