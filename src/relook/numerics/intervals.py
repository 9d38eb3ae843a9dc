"""How sure a mean over images is: its standard error, and the paired bootstrap's interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray

Groups = NDArray[np.int64]
"""Which images belong together, `[image]`: numbers from 0 on."""

_BLOCK_DRAWS = 1 << 20  # draws held at once: 8 MB, whatever the number of images
_TINY = 1e-300  # in place of 0 as a divisor, where the dividend is 0 as well


@dataclass(frozen=True)
class Interval:
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float
    confidence: float

    def __str__(self) -> str:
        return f"{self.estimate:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


def paired_bootstrap(
    differences: ArrayLike,
    *,
    seed: int,
    resamples: int = 2000,
    confidence: float = 0.95,
    groups: ArrayLike | None = None,
) -> Interval:
    """Return the mean of per-image differences `[n]` with its percentile bootstrap interval.

    Images are drawn with replacement; with `groups` (`[n]`, one id for each image) whole groups
    are, for images that are not independent of each other.
    """
    values = np.asarray(differences, dtype=np.float64)
    _check(values, resamples, confidence)
    sums, counts = (values, None) if groups is None else _group_sums(values, np.asarray(groups))
    means = _resampled_means(sums, counts, resamples, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high), confidence)


def mean_and_deviation(values: ArrayLike) -> tuple[float, float]:
    """Return the mean and the sample standard deviation, which is 0 for a single value."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise RelookError(f"expected a list of at least 1 value, got shape {numbers.shape}")
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0


def mean_and_error(
    values: FloatArray, weights: FloatArray, groups: Groups | None = None
) -> tuple[float, float]:
    """Return the weighted mean of `values` `[image]`, and its standard error.

    Images of one group say little more than one of them: the error is that of groups.
    """
    if groups is not None:
        sums = np.bincount(groups, weights * values).astype(np.float64)
        weights = np.bincount(groups, weights).astype(np.float64)
        values = sums / np.maximum(weights, _TINY)
    shares = weights / weights.sum()
    mean = float((shares * values).sum())  # no product of vectors: its sum depends on the threads
    return mean, math.sqrt(float((shares**2 * (values - mean) ** 2).sum()))


def independent_images(images: int, groups: ArrayLike | None) -> float:
    """Return how many independent images there are if those of a group are one and the same.

    That is the number of groups where all are of one size, and fewer where large ones dominate
    (Kish's effective size).
    """
    if groups is None:
        return float(images)
    _, sizes = np.unique(np.asarray(groups), return_counts=True)
    return float(images**2 / (sizes**2).sum())


def _resampled_means(
    sums: FloatArray, counts: FloatArray | None, resamples: int, seed: int
) -> FloatArray:
    """Draw units with replacement, `resamples` times; a unit has a sum and a count of images."""
    generator = np.random.Generator(np.random.PCG64(seed))
    means = np.empty(resamples)
    block = max(1, _BLOCK_DRAWS // len(sums))
    for begin in range(0, resamples, block):
        shape = (min(block, resamples - begin), len(sums))
        drawn = generator.integers(len(sums), size=shape)
        images = len(sums) if counts is None else counts[drawn].sum(axis=1)
        means[begin : begin + block] = sums[drawn].sum(axis=1) / images
    return means


def _group_sums(values: FloatArray, groups: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    if groups.shape != values.shape:
        raise RelookError(f"expected {len(values)} group ids, got shape {groups.shape}")
    _, members = np.unique(groups, return_inverse=True)
    counts = np.bincount(members).astype(np.float64)
    if len(counts) < 2:
        raise RelookError("expected at least 2 groups for an interval, got 1")
    return np.bincount(members, weights=values).astype(np.float64), counts


def _check(values: FloatArray, resamples: int, confidence: float) -> None:
    if values.ndim != 1 or len(values) < 2:
        raise RelookError(
            f"expected differences of at least 2 images for an interval, got shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise RelookError("expected finite differences, got NaN or infinity")
    if resamples < 1 or not 0 < confidence < 1:
        raise RelookError(
            "expected at least 1 resample and a confidence between 0 and 1, "
            f"got {resamples} and {confidence}"
        )
