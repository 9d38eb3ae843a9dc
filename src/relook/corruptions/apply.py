"""Corrupt images: one at a time, so that no image depends on those beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.calibration import FloatArray
from relook.corruptions.draws import Draws, Levels
from relook.corruptions.table import CORRUPTIONS, SEVERITIES
from relook.errors import RelookError, unknown_name
from relook.randomness import check_seed
from relook.transforms.checks import check_images

# A value on the edge between two levels, reached by sums in another order, must not fall the
# other way.
_TIE = 1e-6

Progress = Callable[[int, int], None]


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


def check_corruptions(names: Sequence[str] | None) -> tuple[str, ...]:
    """Return the corruptions asked for in the table's order; None: all."""
    for name in names or ():
        if name not in CORRUPTIONS:
            raise unknown_name("corruption", name, CORRUPTIONS)
    chosen = CORRUPTIONS if names is None else names
    if not chosen:
        raise RelookError(f"expected at least one corruption of {', '.join(CORRUPTIONS)}, got none")
    return tuple(name for name in CORRUPTIONS if name in chosen)


def check_severities(severities: Sequence[int] | None) -> tuple[int, ...]:
    """Return the severities asked for, rising; None: all five."""
    chosen = SEVERITIES if severities is None else tuple(severities)
    if not chosen or any(isinstance(s, bool) or s not in SEVERITIES for s in chosen):
        raise RelookError(f"expected severities from 1 to 5, got {list(chosen)}")
    return tuple(sorted({int(severity) for severity in chosen}))


def _places(
    indices: Sequence[int] | NDArray[np.integer[Any]] | None, images: int
) -> NDArray[np.int64]:
    places = np.arange(images) if indices is None else np.asarray(indices)
    if places.shape != (images,) or places.dtype.kind not in "iu" or (places < 0).any():
        raise RelookError(
            f"expected {images} indices ≥ 0, one an image, got {places.dtype} of shape "
            f"{list(places.shape)}"
        )
    return places.astype(np.int64)


def _to_levels(values: FloatArray) -> Levels:
    return np.clip(np.floor(values + (0.5 + _TIE)), 0, 255).astype(np.uint8)
