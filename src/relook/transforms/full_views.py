"""Views of full-size images: crops of the original, of the resized image, or its centre.

Pillow does the resizing, so these views are its bytes by construction; an image's bytes depend
on nothing but itself and its own draws.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from relook.transforms.centre_crop import Levels, centre_view, resized
from relook.transforms.full_images import FullImages
from relook.transforms.resampling import placed_box, scaled_box
from relook.transforms.steps import AppliedStep
from relook.transforms.table import TRANSFORMS, load_form
from relook.transforms.threads import share_work

_BICUBIC = Image.Resampling.BICUBIC


def open_images(
    images: FullImages, steps: Sequence[AppliedStep]
) -> tuple[Tensor, Sequence[AppliedStep]]:
    """Return uint8 views `[n, c, h, w]` at the input's size, and the steps that are left to do.

    A first step that crops reads its box from the large image; every other sub-policy begins
    with the centre view.
    """
    form = TRANSFORMS[steps[0].transform].full_size if steps else None
    if form is None:
        return plain_views(images), steps
    first, cut = steps[0], load_form(form)
    flips = first.draws.get("flip")

    def view(place: int) -> Levels:
        levels = np.asarray(cut(images, place, first))
        return levels[:, ::-1] if flips is not None and flips[place] == 1 else levels

    return _batch(images, view), steps[1:]


def plain_views(images: Tensor | FullImages) -> Tensor:
    """Return the plain view of each image, uint8 `[n, c, h, w]`: its centre, or itself."""
    if isinstance(images, Tensor):
        return images
    plan = images.plan
    return _batch(images, lambda place: np.asarray(centre_view(images.picture(place), plan)))


def scale_crop(images: FullImages, place: int, step: AppliedStep) -> Image.Image:
    """Cut a box of the large image and resize it to the input's size."""
    height, width = (int(side) for side in images.shapes[place])
    area, aspect, x, y = (float(step.draws[name][place]) for name in ("area", "aspect", "x", "y"))
    box = scaled_box(width, height, float(step.values[place]), area, aspect, x, y)
    return _to_input(images.picture(place, box), images)


def zoom(images: FullImages, place: int, step: AppliedStep) -> Image.Image:
    """Cut a box of the resized image, a share of the input's sides, anywhere in it."""
    whole = resized(images.picture(place), images.plan)
    share = float(step.values[place])
    height, width = (share * side for side in images.plan.size)
    x, y = (float(step.draws[name][place]) for name in ("x", "y"))
    box = placed_box(whole.width, whole.height, width, height, x, y)
    right, bottom = box.left + box.width, box.top + box.height
    return _to_input(whole.crop((box.left, box.top, right, bottom)), images)


def _to_input(image: Image.Image, images: FullImages) -> Image.Image:
    height, width = images.plan.size
    return image.resize((width, height), _BICUBIC)


def _batch(images: FullImages, view: Callable[[int], Levels]) -> Tensor:
    """Make every image's view `[h, w, c]`, on torch's number of threads."""
    views = torch.empty(images.shape, dtype=torch.uint8)
    rows = views.permute(0, 2, 3, 1).numpy()

    def fill(places: Iterator[int]) -> None:
        for place in places:
            rows[place] = view(place).reshape(rows.shape[1:])

    threads = max(1, min(torch.get_num_threads(), len(images)))
    share_work(fill, range(len(images)), threads)
    images.release()
    return views
