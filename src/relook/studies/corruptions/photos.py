"""Corrupted photos, which are larger than the model's input: their views are cut afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relook.io.fingerprint import fingerprint
from relook.studies.corruptions.kernels import Levels
from relook.studies.corruptions.table import corrupt_images
from relook.transforms.centre_crop import resized
from relook.transforms.full_images import FullImages


def resized_photos(photos: FullImages) -> FullImages:
    """Return whole photos at the size that their plain views are cut from."""
    pictures = [resized(photos.picture(place), photos.plan) for place in range(len(photos))]
    channels = photos.plan.channels
    return _known(
        [np.asarray(one).reshape(one.height, one.width, channels) for one in pictures], photos
    )


def corrupt_photos(
    photos: FullImages,
    corruption: str,
    severity: int,
    *,
    seed: int,
    indices: NDArray[np.integer[Any]],
) -> FullImages:
    """Return photos under a corruption that is as strong as for images of the input's size."""
    side = min(photos.plan.size)
    made = []
    for number, place in enumerate(indices):
        image = torch.from_numpy(photos.levels(number)).permute(2, 0, 1)[None]
        found = corrupt_images(image, corruption, severity, seed=seed, indices=[place], side=side)
        made.append(found[0].permute(1, 2, 0).numpy())
    return _known(made, photos)


def _known(images: Sequence[Levels], like: FullImages) -> FullImages:
    fingerprints = np.array([fingerprint(levels) for levels in images])
    return replace(FullImages.of(images, like.plan), fingerprints=fingerprints)
