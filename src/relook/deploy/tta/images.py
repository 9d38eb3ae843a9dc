"""Images as a TTA module takes them: checked, and converted to grey levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.data.decode import upright
from relook.data.image_files import reduce_photos
from relook.data.prepare import in_mode
from relook.deploy.tta.network import is_traced
from relook.errors import RelookError
from relook.foundation.wording import count
from relook.models.base import InputSpec
from relook.policy import Policy
from relook.policy.recipes import RECIPES
from relook.transforms import TRANSFORMS
from relook.transforms.centre_crop import CentreCrop, Levels, resized_size
from relook.transforms.checks import check_images, grey_levels
from relook.transforms.full_images import FullImages

Photo = Tensor | NDArray[Any] | Image.Image
Photos = Tensor | FullImages | Sequence[Photo]
Images = Tensor | NDArray[Any] | FullImages | Sequence[Photo]
Size = tuple[int, int]

CUT_FROM_INPUT = (
    "the policy was searched on photos, from which its crops were cut; here they are cut from "
    "images of the network's size, which are other views: give the photos themselves, as a list"
)


def _as_levels(images: Images) -> Tensor | FullImages:
    """Return images as uint8 `[n, c, h, w]`; floats in [0, 1] are rounded to grey levels.

    Full-size images stay as they are: views are cut from them. During tracing, values are not
    checked.
    """
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.array(images))
    if isinstance(images, Tensor):
        images = grey_levels(images) if images.is_floating_point() else images
        check_images(images)
    elif not isinstance(images, FullImages):
        raise RelookError(
            f"expected images as a tensor or an array [n, c, h, w], or a list of photos, got "
            f"{type(images).__name__}"
        )
    if not is_traced() and not len(images):
        raise RelookError("expected at least 1 image, got none")
    return images


def preparation_for(
    size: Size, channels: int, spec: InputSpec | None, searched: CentreCrop | None
) -> CentreCrop:
    """Return how images are brought to a size: as in the search, or by the model's spec."""
    if searched is not None and searched.size == size:
        return replace(searched, channels=channels)
    spec = spec or InputSpec(size)
    full = searched is not None and searched.full_size
    return CentreCrop(size, spec.crop, channels, spec.interpolation, full_size=full)


def as_photos(images: Photos, plan: CentreCrop) -> FullImages:
    """Return photos at their own size: tensors `[c, h, w]`, arrays `[h, w, c]`, Pillow images.

    Arrays are uint8. Pillow images are turned upright and converted to the plan's channels, as
    files are.
    """
    if not len(images):
        raise RelookError("expected at least 1 image, got none")
    if isinstance(images, FullImages):
        return replace(images, plan=plan)
    return FullImages.of(
        [_photo_levels(one, plan, place) for place, one in enumerate(images)], plan
    )


def cuts_photos(policy: Policy) -> bool:
    """Whether a policy was searched on photos, and has views that are cut from them."""
    if policy.preparation is None or not policy.preparation.full_size:
        return False
    first = (sub.all_steps[0].transform for sub in policy if not sub.is_plain)
    return any(TRANSFORMS[name].full_size is not None for name in first)


def _photo_levels(photo: Photo, plan: CentreCrop, place: int) -> Levels:
    """Return one photo's levels `[h, w, c]`, or raise."""
    try:
        if isinstance(photo, Image.Image):
            photo = np.asarray(in_mode(upright(photo), "L" if plan.channels == 1 else "RGB"))
        if isinstance(photo, Tensor):
            one = grey_levels(photo[None]) if photo.is_floating_point() else photo[None]
            check_images(one)
            photo = one[0].permute(1, 2, 0).cpu().numpy()
        levels = photo[..., None] if photo.ndim == 2 else photo
        if levels.dtype != np.uint8 or levels.ndim != 3 or levels.shape[2] != plan.channels:
            wanted = f"uint8 [h, w, {plan.channels}] (a tensor: [{plan.channels}, h, w])"
            raise ValueError(f"expected {wanted}, got {levels.dtype} {list(levels.shape)}")
        resized_size((levels.shape[0], levels.shape[1]), plan)  # raises if a view cannot be made
    except (ValueError, RelookError) as error:
        raise RelookError(f"photo {place}: {error}") from None
    return np.ascontiguousarray(levels)


def open_images(
    images: Images, policy: Policy, size: Size | None, channels: int | None, spec: InputSpec | None
) -> Tensor | FullImages:
    """Return uint8 images `[n, c, h, w]`, or photos at full size, that fit network and policy.

    Photos are a list or, for a policy that was searched on photos, a batch whose size is not the
    input's.
    """
    searched = policy.preparation

    def at_full_size(photos: Photos) -> FullImages:
        if size is None:
            raise RelookError(
                "expected size=… to take photos: the model does not say its input's size"
            )
        wanted = channels or (3 if searched is None else searched.channels)
        return reduce_photos(as_photos(photos, preparation_for(size, wanted, spec, searched)))

    levels = at_full_size(images) if isinstance(images, list | tuple) else _as_levels(images)
    full = searched is not None and searched.full_size and not is_traced()
    if full and isinstance(levels, Tensor) and tuple(levels.shape[2:]) != size:
        levels = at_full_size(levels)
    _check_fit(levels, channels, size, policy)
    return levels


def shape_of(images: Images, size: Size | None) -> Sequence[int]:
    """Return the shape `[n, c, h, w]` of images; for a list of photos, that of their views."""
    if isinstance(images, list | tuple) and images:
        return len(images), 3, *(size or (1, 1))
    if isinstance(images, Tensor | np.ndarray | FullImages):
        shape: Sequence[int] = images.shape
        if len(shape) == 4 and len(images):
            return shape
    _as_levels(images)  # raises with the reason
    raise RelookError("expected at least 1 image, got none")


def _check_fit(
    images: Tensor | FullImages, channels: int | None, size: Size | None, policy: Policy
) -> None:
    """Raise unless images `[n, c, h, w]` fit network and policy.

    If no size is given, the policy of a built-in recipe takes half to twice the recipe's size.
    """
    given, height, width = images.shape[1:]
    if channels is not None and given != channels:
        raise RelookError(
            f"expected images with {count(channels, 'channel')}, as the network takes; "
            f"got {given}: convert the images"
        )
    if size is not None:
        if (height, width) != size:
            raise RelookError(
                f"expected images of {size[0]}×{size[1]} (height × width), as network and policy "
                f"were made for; got {height}×{width}: resize them, or say size=({height}, {width})"
            )
        return
    recipe = RECIPES.get(policy.recipe or "")
    meant = None if recipe is None else recipe.image_size
    if meant is not None and not meant / 2 <= min(height, width) <= meant * 2:
        raise RelookError(
            f"expected images of about {meant} pixels, as the policy's recipe {policy.recipe!r} is "
            f"meant for; got {height}×{width}: search a policy for them, or, if this one was "
            f"found on such images, say size=({height}, {width})"
        )
