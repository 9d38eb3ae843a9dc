"""Images on their way into a TTA module: checked, and turned into grey levels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.deploy.tta.network import is_traced
from relook.errors import RelookError
from relook.policy import Policy
from relook.policy.recipes import RECIPES
from relook.transforms.checks import check_images, grey_levels
from relook.transforms.full_images import FullImages

Images = Tensor | NDArray[Any] | FullImages
Size = tuple[int, int]


def as_levels(images: Images) -> Tensor | FullImages:
    """Return images as uint8 `[n, c, h, w]`; floats in [0, 1] are rounded to grey levels.

    Full-size images stay as they are: views are cut from them.

    Values are not looked at while a graph is made: a graph takes them as they come.
    """
    if isinstance(images, FullImages):
        if not len(images):
            raise RelookError("expected at least 1 image, got none")
        return images
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(np.array(images))
    if not isinstance(images, Tensor):
        raise RelookError(
            f"expected images as a tensor or an array [n, c, h, w], got {type(images).__name__}"
        )
    if images.is_floating_point():
        images = grey_levels(images)
    check_images(images)
    if not is_traced() and not len(images):
        raise RelookError("expected at least 1 image, got none")
    return images


def check_fit(
    images: Tensor | FullImages, channels: int | None, size: Size | None, policy: Policy
) -> None:
    """Raise where images `[n, c, h, w]` are not what network and policy were made for.

    Without a stated size, a built-in recipe's policy takes from half to twice its image size.
    """
    given, height, width = images.shape[1:]
    if channels is not None and given != channels:
        raise RelookError(
            f"expected images with {channels} channels, as the network takes; got {given}: "
            "convert the images"
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
