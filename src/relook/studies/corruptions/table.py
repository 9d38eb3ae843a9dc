"""The table of corruptions, each with its five severities at two image sizes, and its use.

The parameters are those of the published sets (Hendrycks and Dietterich, "Benchmarking neural
network robustness to common corruptions and perturbations", ICLR 2019; values from
github.com/hendrycks/robustness): CIFAR-10-C's for a side of 32 pixels and ImageNet-C's for 224.
Between these, parameters are interpolated on a logarithmic scale of the side: lengths in pixels
linearly, all others geometrically. Outside, lengths scale with the side, and all others are
constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.data.corrupted import FAMILIES, check_corruptions, check_severities
from relook.errors import RelookError
from relook.foundation.progress import Progress
from relook.foundation.registry import by_name
from relook.io.fingerprint import fingerprint
from relook.numerics.arrays import FloatArray
from relook.numerics.randomness import check_seed
from relook.studies.corruptions import kernels
from relook.studies.corruptions.kernels import Draws, Levels, Parameters
from relook.transforms.centre_crop import resized
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages

SMALL, LARGE = 32, 224
"""The sides, in pixels, of the published parameters."""

Kernel = Callable[[Levels, Parameters, Draws], FloatArray]
Five = tuple[Parameters, ...]

# Added before rounding, so that a value halfway between two levels rounds the same way whatever the
# order of its sums.
_TIE = 1e-6


@dataclass(frozen=True)
class Corruption:
    """One row: `kernel(image, parameters, draws)` on uint8 `[c, h, w]` returns levels 0 … 255.

    `small` and `large` are the parameters of the five severities for sides of 32 and 224;
    `lengths` are the positions of those that are lengths in pixels.
    """

    name: str
    kernel: Kernel
    small: Five
    large: Five
    lengths: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        """Its position among all corruptions, which selects its random numbers."""
        return list(FAMILIES).index(self.name)

    def parameters(self, severity: int, side: int) -> Parameters:
        """Return the parameters of a severity for images whose shorter side is `side` pixels."""
        small, large = self.small[severity - 1], self.large[severity - 1]
        share = math.log(side / SMALL) / math.log(LARGE / SMALL)
        if 0 <= share <= 1:
            return tuple(
                _between(s, g, share, i in self.lengths)
                for i, (s, g) in enumerate(zip(small, large, strict=True))
            )
        values, scale = (small, side / SMALL) if share < 0 else (large, side / LARGE)
        return tuple(v * scale if i in self.lengths else v for i, v in enumerate(values))


def _between(small: float, large: float, share: float, length: bool) -> float:
    """Interpolate linearly if the value is a length, or 0; else geometrically."""
    if small > 0 and large > 0 and not length:
        return float(small ** (1 - share) * large**share)
    return small + share * (large - small)


def _each(*values: float) -> Five:
    """Return five severities of a single parameter."""
    return tuple((value,) for value in values)


_ROWS = (
    Corruption("gaussian_noise", kernels.gaussian_noise,
        _each(0.04, 0.06, 0.08, 0.09, 0.10), _each(0.08, 0.12, 0.18, 0.26, 0.38)),
    Corruption("shot_noise", kernels.shot_noise,
        _each(500, 250, 100, 75, 50), _each(60, 25, 12, 5, 3)),
    Corruption("impulse_noise", kernels.impulse_noise,
        _each(0.01, 0.02, 0.03, 0.05, 0.07), _each(0.03, 0.06, 0.09, 0.17, 0.27)),
    Corruption("defocus_blur", kernels.defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)), (0, 1)),
    Corruption("glass_blur", kernels.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)), (0, 1)),
    Corruption("motion_blur", kernels.motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)), (0, 1)),
    Corruption("zoom_blur", kernels.zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.15, 0.01), (1.20, 0.01), (1.25, 0.01)),
        ((1.11, 0.01), (1.15, 0.01), (1.20, 0.02), (1.24, 0.02), (1.30, 0.03))),
    Corruption("snow", kernels.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ), (2, 4, 5)),
    Corruption("frost", kernels.frost,
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))),
    Corruption("fog", kernels.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4))),
    Corruption("brightness", kernels.brightness,
        _each(0.05, 0.1, 0.15, 0.2, 0.3), _each(0.1, 0.2, 0.3, 0.4, 0.5)),
    Corruption("contrast", kernels.contrast,
        _each(0.75, 0.5, 0.4, 0.3, 0.15), _each(0.4, 0.3, 0.2, 0.1, 0.05)),
    Corruption("elastic_transform", kernels.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        tuple(  # published as shares of 244 pixels
            tuple(244 / LARGE * share for share in shares)
            for shares in ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02),
                           (0.12, 0.01, 0.02))
        )),
    Corruption("pixelate", kernels.pixelate,
        _each(0.95, 0.9, 0.85, 0.75, 0.65), _each(0.6, 0.5, 0.4, 0.3, 0.25)),
    Corruption("jpeg_compression", kernels.jpeg_compression,
        _each(80, 65, 58, 50, 40), _each(25, 18, 15, 10, 7)),
)  # fmt: skip


CORRUPTIONS = by_name(_ROWS)
"""All corruptions by name, in the order of the published sets."""


def corrupt_images(
    images: Tensor,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    indices: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    side: int | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Return uint8 images `[n, c, h, w]` under a corruption of CORRUPTIONS at severity 1 … 5.

    `indices` are the images' places in their data set (default 0 … n − 1). The strength is that for
    images of `side` pixels (default: their shorter side). A result depends only on its image, the
    seed, its index, the corruption and the severity.
    """
    check_images(images)
    (name,), (level,) = check_corruptions([corruption]), check_severities([severity])
    row = CORRUPTIONS[name]
    places = _places(indices, len(images))
    parameters = row.parameters(level, side or min(images.shape[2:]))
    corrupted = np.empty(tuple(images.shape), dtype=np.uint8)
    sources: Levels = np.ascontiguousarray(images.cpu().numpy())
    seed = check_seed(seed)
    for number, (image, place) in enumerate(zip(sources, places, strict=True)):
        draws = Draws(seed, int(place), row.number, level)
        values = np.floor(row.kernel(image, parameters, draws) + (0.5 + _TIE))
        corrupted[number] = np.clip(values, 0, 255)
        if progress is not None:
            progress(number + 1, len(sources))
    return torch.from_numpy(corrupted).to(images.device)


def resized_photos(photos: FullImages) -> FullImages:
    """Return whole photos at the size that their plain views are cut from."""
    pictures = [resized(photos.picture(place), photos.plan) for place in range(len(photos))]
    channels = photos.plan.channels
    return _photos_like(
        photos, [np.asarray(one).reshape(one.height, one.width, channels) for one in pictures]
    )


def corrupt_photos(
    photos: FullImages,
    corruption: str,
    severity: int,
    *,
    seed: int,
    indices: NDArray[np.integer[Any]],
) -> FullImages:
    """Return photos under a corruption as strong as for images of the model's input size."""
    side = min(photos.plan.size)
    corrupted = []
    for number, place in enumerate(indices):
        image = torch.from_numpy(photos.levels(number)).permute(2, 0, 1)[None]
        result = corrupt_images(image, corruption, severity, seed=seed, indices=[place], side=side)
        corrupted.append(result[0].permute(1, 2, 0).numpy())
    return _photos_like(photos, corrupted)


def _photos_like(like: FullImages, images: Sequence[Levels]) -> FullImages:
    """Return images with the plan of other photos, and fingerprints of their contents."""
    fingerprints = np.array([fingerprint(levels) for levels in images])
    return replace(FullImages.of(images, like.plan), fingerprints=fingerprints)


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
