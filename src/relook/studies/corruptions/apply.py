"""Corrupt images: one at a time, so that no image depends on its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.data.corrupted import check_corruptions, check_severities
from relook.errors import RelookError
from relook.foundation.progress import Progress
from relook.numerics.arrays import FloatArray
from relook.numerics.randomness import check_seed
from relook.studies.corruptions.draws import Draws, Levels
from relook.studies.corruptions.table import CORRUPTIONS
from relook.transforms.checks import check_images

# A value on the edge between two levels, reached by sums in another order, must not fall the
# other way.
_TIE = 1e-6


def corrupt_images(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Return uint8 images `[n, c, h, w]` under a corruption of CORRUPTIONS at severity 1 … 5.

    `indices` are the images' places in their data set (default 0 … n − 1). A result is a
    function of its image, the seed, its index, the corruption and the severity alone.
    """
    check_images(images)
    (name,), (level,) = check_corruptions([corruption]), check_severities([severity])
    row = CORRUPTIONS[name]
    places = _places(indices, len(images))
    parameters = row.parameters(level, min(images.shape[2:]))
    corrupted = np.empty(tuple(images.shape), dtype=np.uint8)
    sources: Levels = np.ascontiguousarray(images.cpu().numpy())
    seed = check_seed(seed)
    for number, (image, place) in enumerate(zip(sources, places, strict=True)):
        draws = Draws(seed, int(place), row.number, level)
        corrupted[number] = _to_levels(row.kernel(image, parameters, draws))
        if progress is not None:
            progress(number + 1, len(sources))
    return torch.from_numpy(corrupted).to(images.device)


def _places(
    indices: Sequence[int] | NDArray[np.integer[Any]] | None, images: int
) -> NDArray[np.int64]:
    places = np.arange(images) if indices is None else np.asarray(indices)
    if places.shape != (images,) or places.dtype.kind not in "iu" or (places < 0).any():
        raise RelookError(
            f"expected {images} indices ≥ 0, one per image, got {places.dtype} of shape "
            f"{list(places.shape)}"
        )
    return places.astype(np.int64)


def _to_levels(values: FloatArray) -> Levels:
    return np.clip(np.floor(values + (0.5 + _TIE)), 0, 255).astype(np.uint8)
