"""How high a score can still get: bounds on max over β, from one evaluation."""

from __future__ import annotations

import numpy as np

from relook.calibration import TEMPERATURE_RANGE, FloatArray
from relook.selection.fast_pool import Values

LOWEST_BETA, HIGHEST_BETA = 1 / TEMPERATURE_RANGE[1], 1 / TEMPERATURE_RANGE[0]


def upper_bounds(beta: FloatArray, values: Values, spread: float) -> FloatArray:
    """Return what max over β of each score cannot exceed, `[k]`.

    `values` belong to β `[k]`; `spread` is at least the largest difference between two log-probabilities of one image. The third derivative
    is a mean of third central moments of such log-probabilities, so it is at most spread × bend:
    bend(β + δ) ≥ bend·e^(−spread·|δ|). Integrated twice, with x = spread·|slope|/bend < 1:

        max f ≤ f + bend/spread²·(x + (1 − x)·log(1 − x))

    For larger x the tangent bounds the score at the end of the range of β.
    """
    score, slope, bend = values.score, values.slope, values.bend
    reach = np.where(slope >= 0, HIGHEST_BETA - beta, beta - LOWEST_BETA)
    by_tangent = np.abs(slope) * reach
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = spread * np.abs(slope) / bend
        usable = x < 1
        rest = np.where(usable, 1 - x, 1.0)
        by_bend = bend / spread**2 * (x + rest * np.log(rest))
    return score + np.where(usable, np.minimum(by_bend, by_tangent), by_tangent)
