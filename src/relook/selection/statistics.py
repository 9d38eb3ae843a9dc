"""Means over images, and how sure they are."""

from __future__ import annotations

import math

from relook.calibration import FloatArray


def mean_and_error(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Return the weighted mean of `values` `[image]`, and its standard error."""
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return mean, math.sqrt(float(shares**2 @ (values - mean) ** 2))
