"""What a search maximises: the one table of objectives, and class balancing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relook.errors import RelookError, unknown_name
from relook.foundation.registry import by_name
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.metrics import accuracy, brier, ece, log_likelihood

Score = Callable[[FloatArray, Labels, FloatArray | None], float]
UserObjective = Callable[[FloatArray, Labels], float]


@dataclass(frozen=True)
class Objective:
    """One row: `score(log_probs [n, c], labels [n], weights [n] or None)`, larger is better."""

    name: str
    score: Score


def _cll(log_probs: FloatArray, labels: Labels, weights: FloatArray | None) -> float:
    return calibrated_log_likelihood(log_probs, labels, weights)[0]


def _negated(metric: Score) -> Score:
    return lambda log_probs, labels, weights: -metric(log_probs, labels, weights)


_ROWS = (
    Objective("cll", _cll),
    Objective("ll", log_likelihood),
    Objective("accuracy", accuracy),
    Objective("brier", _negated(brier)),
    Objective("ece", _negated(ece)),
)

OBJECTIVES = by_name(_ROWS)
"""All objectives by name; `cll` is the default."""


def resolve_objective(objective: str | UserObjective) -> Objective:
    """Return the table's row of that name, or wrap a callable `(log_probs, labels) -> float`."""
    if isinstance(objective, str) and objective in OBJECTIVES:
        return OBJECTIVES[objective]
    if callable(objective):
        return _wrapped(objective)
    raise unknown_name("objective", objective, OBJECTIVES)


def class_weights(labels: Labels) -> FloatArray:
    """Return weights `[n]` that give each class present the same total, with a mean of 1."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(len(labels) / (len(counts) * counts[classes]), dtype=np.float64)


def _wrapped(function: UserObjective) -> Objective:
    name = getattr(function, "__name__", type(function).__name__)

    def score(log_probs: FloatArray, labels: Labels, weights: FloatArray | None) -> float:
        if weights is not None:
            raise RelookError(
                f"objective {name}: a callable cannot be balanced from outside; weigh the "
                f"classes inside it, or use one of {', '.join(OBJECTIVES)}"
            )
        result = function(log_probs, labels)
        try:
            value = float(result)
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise RelookError(f"objective {name}: expected a finite number, got {result!r}")
        return value

    return Objective(name, score)
