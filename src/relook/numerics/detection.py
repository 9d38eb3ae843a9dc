"""How well a score tells a model's own images from foreign ones: AUROC and FPR95.

Scores are higher for own images; `own` is `[n]`, `foreign` `[m]`.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, paired_interval


def auroc(own: FloatArray, foreign: FloatArray) -> float:
    """Return how often an own image has the higher score of a pair; ties count half."""
    return float(_placements(own, foreign).mean())


def fpr95(own: FloatArray, foreign: FloatArray) -> float:
    """Return the share of foreign images that pass where 95 % of the own ones do."""
    threshold = np.quantile(own, 0.05, method="lower")
    return float((foreign >= threshold).mean())


def auroc_gain(
    one: tuple[FloatArray, FloatArray],
    other: tuple[FloatArray, FloatArray],
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return the difference of two scores of the same images in AUROC (DeLong et al. 1988).

    Each is a pair of own and foreign scores; `groups` `[n]` are those of the own images.
    """
    differences = _placements(*one) - _placements(*other)
    own = paired_interval(differences, groups=groups, confidence=confidence)
    swapped = (_placements(-foreign, -mine) for mine, foreign in (one, other))
    foreign = paired_interval(np.subtract(*swapped), confidence=confidence)
    reach = math.hypot(own.high - own.estimate, foreign.high - foreign.estimate)
    return Interval(own.estimate, own.estimate - reach, own.estimate + reach, confidence)


def _placements(scores: FloatArray, others: FloatArray) -> FloatArray:
    """Return the share of the others below each score `[n]`, ties by half."""
    ordered = np.sort(others)
    sides = [np.searchsorted(ordered, scores, side) for side in ("left", "right")]
    return np.asarray((sides[0] + sides[1]) / (2 * len(others)))
