"""Corruption errors (the paper's section on domain shift): uCE, muCE, CE and mCE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from relook.errors import RelookError
from relook.studies.corruptions import SEVERITIES

ALEXNET_ERRORS = MappingProxyType(
    {
        "gaussian_noise": 0.886428,
        "shot_noise": 0.894468,
        "impulse_noise": 0.922640,
        "defocus_blur": 0.819880,
        "glass_blur": 0.826268,
        "motion_blur": 0.785948,
        "zoom_blur": 0.798360,
        "snow": 0.866816,
        "frost": 0.826572,
        "fog": 0.819324,
        "brightness": 0.564592,
        "contrast": 0.853204,
        "elastic_transform": 0.646056,
        "pixelate": 0.717840,
        "jpeg_compression": 0.606500,
    }
)
"""AlexNet's mean error over the five severities of ImageNet-C, central crop.

Published by the authors of ImageNet-C (Hendrycks and Dietterich, ICLR 2019,
github.com/hendrycks/robustness) as what CE is divided by.
"""

IMAGENET_CLASSES = 1000

Errors = Mapping[str, Sequence[float]]
"""Error rates (0 … 1) by corruption, one a severity."""


def unnormalised(errors: Errors) -> dict[str, float]:
    """Return uCE by corruption: the mean of its errors over the severities."""
    return {name: _mean(one, name) for name, one in errors.items()}


def normalised(errors: Errors) -> dict[str, float]:
    """Return CE by corruption: the sum of its errors over the sum of AlexNet's.

    Defined for the five severities of ImageNet-C alone.
    """
    found = {}
    for name, one in errors.items():
        if name not in ALEXNET_ERRORS or len(one) != len(SEVERITIES):
            raise RelookError(
                f"CE of {name}: expected a corruption of ImageNet-C at its five severities, got "
                f"{len(one)} error rates"
            )
        found[name] = sum(one) / (len(SEVERITIES) * ALEXNET_ERRORS[name])
    return found


def mean_over_corruptions(values: Mapping[str, float]) -> float:
    """Return muCE of uCEs, or mCE of CEs: their mean over the corruptions."""
    return _mean(list(values.values()), "the mean over corruptions")


def has_normaliser(classes: int, severities: Sequence[int]) -> bool:
    """Whether CE is defined: ImageNet's classes, at all five severities."""
    return classes == IMAGENET_CLASSES and tuple(severities) == SEVERITIES


def _mean(values: Sequence[float], where: str) -> float:
    if not len(values):
        raise RelookError(f"{where}: expected at least 1 error rate, got none")
    return float(np.mean(values))
