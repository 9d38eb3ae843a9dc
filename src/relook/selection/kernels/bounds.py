"""Upper bounds on a score's maximum over β, from one evaluation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import TEMPERATURE_RANGE

LOWEST_BETA, HIGHEST_BETA = 1 / TEMPERATURE_RANGE[1], 1 / TEMPERATURE_RANGE[0]


@dataclass(frozen=True)
class Values:
    """Score, slope and minus the second derivative of candidates at some β, float64 `[k]`."""

    score: FloatArray
    slope: FloatArray
    bend: FloatArray


_SHORT_WAY = 0.2  # of β: the tighter bound on the third derivative is used this far down


def upper_bounds(beta: FloatArray, values: Values, spread: float, classes: float) -> FloatArray:
    """Return an upper bound on each score's maximum over β, `[k]`.

    `values` are those at β `[k]`; `spread` is at least the largest difference between two
    log-probabilities of one image. The third derivative is a mean of third central moments of
    an image's log-probabilities under its tempered probabilities, so it is at most bend × the
    largest distance from their mean: below the mean that is `spread`; above it log(classes)/β,
    as β × (the largest − the mean) is at most the entropy. So bend(β + δ) ≥ bend·e^(−limit·|δ|)
    with limit = `spread` upwards and log(classes)/β downwards. Integrated twice, with
    x = limit·|slope|/bend < 1:

        max f ≤ f + bend/limit²·(x + (1 − x)·log(1 − x)), reached at |δ| = −log(1 − x)/limit

    Otherwise the tangent bounds the score at the end of the range of β.
    """
    score, slope, bend = values.score, values.slope, values.bend
    upwards = slope >= 0
    by_tangent = np.abs(slope) * np.where(upwards, HIGHEST_BETA - beta, beta - LOWEST_BETA)
    down = np.minimum(spread, math.log(classes) / ((1 - _SHORT_WAY) * beta))
    tight = _by_bend(slope, bend, down, np.where(upwards, 0.0, _SHORT_WAY * beta))
    loose = _by_bend(slope, bend, np.full_like(beta, spread), np.full_like(beta, np.inf))
    return np.asarray(score + np.minimum(by_tangent, np.minimum(tight, loose)))


def _by_bend(slope: FloatArray, bend: FloatArray, limit: FloatArray, way: FloatArray) -> FloatArray:
    """Return the score's largest gain, or infinity if the maximum may be further than `way`."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = limit * np.abs(slope) / bend
        rest = np.where(x < 1, 1 - x, 1.0)
        gain = bend / limit**2 * (x + rest * np.log(rest))
        usable = (x < 1) & (-np.log(rest) / limit <= way)
    return np.where(usable, gain, np.inf)
