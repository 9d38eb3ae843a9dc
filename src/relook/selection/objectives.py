"""The objectives of a search, in one table, and class balancing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relook.errors import RelookError, unknown_name
from relook.foundation.registry import Table
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.metrics import accuracy, brier, ece, log_likelihood

Score = Callable[[FloatArray, Labels, FloatArray | None], float]
UserObjective = Callable[[FloatArray, Labels], float]


@dataclass(frozen=True)
class Objective:
    """A row: `score(log_probs [n, c], labels [n], weights [n] or None)`, larger is better.

    An objective that is not `weighted` refuses weights.
    """

    name: str
    score: Score
    weighted: bool = True


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

OBJECTIVES = Table("objective", _ROWS)
"""All objectives by name; `cll` is the default."""


def register_objective(
    name: str, function: Callable[..., float], *, weighted: bool = False
) -> Callable[..., float]:
    """Add an objective: `function(log_probs [n, c], labels [n])`, larger is better.

    A `weighted` one takes weights `[n]`, or None, as its third argument; balanced searches and
    races need them. `relook.testing.check_objective` checks it. Returns the function.
    """
    OBJECTIVES.add(own_objective(name, function, weighted=weighted))
    return function


def own_objective(name: str, function: Callable[..., float], *, weighted: bool) -> Objective:
    """Return the row of a user's objective."""
    return Objective(name, function) if weighted else _wrapped(function, name)


def resolve_objective(objective: str | UserObjective) -> Objective:
    """Return the table's row of that name, or wrap a callable `(log_probs, labels) -> float`."""
    if isinstance(objective, str) and objective in OBJECTIVES:
        return OBJECTIVES[objective]
    if callable(objective):
        return _wrapped(objective, getattr(objective, "__name__", type(objective).__name__))
    raise unknown_name("objective", objective, OBJECTIVES)


def class_weights(labels: Labels) -> FloatArray:
    """Return weights `[n]` that give each class present the same total, with a mean of 1."""
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(len(labels) / (len(counts) * counts[classes]), dtype=np.float64)


def _wrapped(function: UserObjective, name: str) -> Objective:
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

    return Objective(name, score, weighted=False)
