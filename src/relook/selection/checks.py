"""What must hold of predictions and settings before a search starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.numerics.arrays import Labels, LogProbs

SUSPECT = 0.98
"""A row that float32 finds this part of what is allowed away from normalised is checked again."""


def normalised_within(log_probs: LogProbs) -> float:
    """Return how far from 0 the log of a row's sum may be: float16 has 11 bits."""
    return 5e-3 if log_probs.dtype == np.float16 else 1e-3


def check_predictions(log_probs: LogProbs, labels: Labels) -> None:
    """Raise a RelookError unless predictions and labels can be searched.

    Expected are normalised log-probabilities `[candidate, image, class]`, labels `[image]`.
    """
    check_shapes(log_probs, labels)
    check_rows(log_probs, range(len(log_probs)))


def check_shapes(log_probs: LogProbs, labels: Labels) -> None:
    """Raise a RelookError unless shapes, types and labels fit together."""
    if log_probs.ndim != 3 or log_probs.dtype.kind != "f":
        raise RelookError(
            "predictions: expected a float array [candidate, image, class], "
            f"got {log_probs.dtype} with shape {log_probs.shape}"
        )
    candidates, images, classes = log_probs.shape
    if candidates < 1 or images < 1 or classes < 2:
        raise RelookError(
            "predictions: expected at least 1 candidate, 1 image and 2 classes, "
            f"got {candidates}, {images} and {classes}"
        )
    _check_labels(labels, images, classes)


def check_rows(log_probs: LogProbs, candidates: Iterable[int]) -> None:
    """Raise a RelookError unless these candidates' rows are normalised log-probabilities."""
    for candidate in candidates:
        _check_rows(log_probs[candidate], candidate)


def check_length(length: int, start: Sequence[int], candidates: int) -> None:
    """Raise a RelookError unless the policy's length and its first picks make sense."""
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {length!r}")
    if len(start) > length:
        raise RelookError(f"expected at most {length} first picks, got {len(start)}")
    for pick in start:
        if not 0 <= pick < candidates:
            raise RelookError(f"expected first picks from 0 to {candidates - 1}, got {pick!r}")


def check_defaults(defaults: Iterable[int], candidates: int) -> tuple[int, ...]:
    """Return a conservative selection's defaults as whole numbers, or raise a RelookError."""
    found = tuple(int(one) for one in defaults)
    for one in found:
        if not 0 <= one < candidates:
            raise RelookError(f"expected defaults from 0 to {candidates - 1}, got {one}")
    return found


def _check_labels(labels: NDArray[Any], images: int, classes: int) -> None:
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise RelookError(
            f"labels: expected {images} whole numbers, one for each image of the predictions, "
            f"got {labels.dtype} with shape {labels.shape}"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise RelookError(
            f"labels: expected 0 to {classes - 1}, as the predictions have {classes} classes, "
            f"got {labels[wrong[0]]} at image {wrong[0]}"
        )


def _check_rows(log_probs: LogProbs, candidate: int) -> None:
    """Check one candidate's predictions `[n, c]`; NaN and +inf fail the same comparison."""
    within = normalised_within(log_probs)
    top = log_probs.max(axis=1)
    high = np.flatnonzero(~(top <= within))
    if len(high):
        raise RelookError(
            f"predictions: expected log-probabilities, which are at most 0, got {top[high[0]]} "
            f"at candidate {candidate}, image {high[0]}: pass the model's log_softmax"
        )
    with np.errstate(divide="ignore"):  # a row of zeros: −inf, and refused below
        total = np.log(np.exp(log_probs, dtype=np.float64).sum(axis=1))
    off = np.flatnonzero(np.abs(total) > within)
    if len(off):
        raise RelookError(
            "predictions: expected probabilities that sum to 1, got a sum of "
            f"{np.exp(total[off[0]]):.6g} at candidate {candidate}, image {off[0]}: "
            "pass the model's log_softmax"
        )
