"""Means over images, and how sure they are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray

_TINY = 1e-300  # instead of nothing, below a sum that is nothing as well

Groups = NDArray[np.int64]
"""Which images belong together, `[image]`: numbers from 0 on."""


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
