"""Greedy policy search (the paper's Algorithm 1) over a pool's predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.calibration import (
    LOG_FLOOR,
    FloatArray,
    Labels,
    LogProbs,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
)
from relook.errors import RelookError
from relook.objectives import (
    OBJECTIVES,
    Objective,
    UserObjective,
    class_weights,
    resolve_objective,
)

TIE = 1e-9
"""Scores that differ by at most this are equal, and the lowest index is picked."""

BLOCK_BYTES = 256 << 20
"""About how much memory the scoring of one block of candidates may take."""

_ARRAYS_IN_FLIGHT = 5  # float64 copies of a block while it is scored
_NORMALISED_WITHIN = 1e-3

Progress = Callable[[int, int, float], None]


@dataclass(frozen=True)
class SearchResult:
    """The candidates picked, in order; score and temperature of each prefix of the policy."""

    picks: tuple[int, ...]
    scores: tuple[float, ...]
    temperatures: tuple[float, ...]


def greedy_search(
    log_probs: LogProbs,
    labels: Labels,
    length: int,
    objective: str | UserObjective = "cll",
    *,
    balanced: bool = False,
    progress: Progress | None = None,
    start: Sequence[int] = (),
) -> SearchResult:
    """Pick `length` candidates, each the best addition to the average so far; repeats allowed.

    `log_probs` is `[candidate, image, class]`, `labels` `[image]`. `balanced` gives each class
    the same weight, in the score and in the temperatures, which are always fitted by cLL.
    `start` holds the first picks, made beforehand and counted in `length`; a search that goes
    on from its own first picks ends in the same result. `progress(done, total, score)` is
    called after each step.
    """
    log_probs, labels = np.asarray(log_probs), np.asarray(labels)
    check_predictions(log_probs, labels)
    _check_length(length, start, len(log_probs))
    labels = labels.astype(np.int64)
    chosen = resolve_objective(objective)
    weights = class_weights(labels) if balanced else None

    mean = np.zeros(log_probs.shape[1:])  # the policy's average probabilities, π
    temperature = 1.0
    picks: list[int] = []
    scores: list[float] = []
    temperatures: list[float] = []
    for step in range(1, length + 1):
        given = step <= len(start)
        pool = log_probs[start[step - 1]][None] if given else log_probs
        step_scores = score_candidates(pool, labels, mean, step, chosen, weights, temperature)
        best = first_best(step_scores)
        pick = int(start[step - 1]) if given else best
        mean = extended_mean(mean, log_probs[pick], step)
        _, temperature = calibrated_log_likelihood(
            floored_log(mean), labels, weights, start=temperature
        )
        picks.append(pick)
        scores.append(float(step_scores[best]))
        temperatures.append(temperature)
        if progress is not None:
            progress(step, length, scores[-1])
    return SearchResult(tuple(picks), tuple(scores), tuple(temperatures))


def score_candidates(
    log_probs: LogProbs,
    labels: Labels,
    mean: FloatArray,
    step: int,
    objective: Objective,
    weights: FloatArray | None = None,
    temperature: float = 1.0,
    block_bytes: int = BLOCK_BYTES,
) -> FloatArray:
    """Score each candidate `[k, n, c]` as the policy's entry number `step`: `[k]`.

    `mean` `[n, c]` is the average of the entries before it, `temperature` the one that fits
    them: a first guess. A candidate's score is the same to the last bit in any block.
    """
    block = max(1, block_bytes // (_ARRAYS_IN_FLIGHT * mean.nbytes))
    scores = np.empty(len(log_probs))
    for begin in range(0, len(log_probs), block):
        part = slice(begin, begin + block)
        log_q = floored_log(extended_mean(mean, log_probs[part], step))
        if objective is OBJECTIVES["cll"]:
            scores[part], _ = calibrated_log_likelihoods(log_q, labels, weights, temperature)
        else:
            scores[part] = [objective.score(each, labels, weights) for each in log_q]
    return scores


def extended_mean(mean: FloatArray, log_probs: LogProbs, step: int) -> FloatArray:
    """Return q = ((t − 1)·π + p)/t: the average probabilities with entry number t = `step`."""
    total = np.exp(log_probs, dtype=np.float64)
    total += (step - 1) * mean
    total /= step
    return total


def floored_log(probabilities: FloatArray) -> FloatArray:
    """Return log q, floored at −80."""
    return np.log(np.maximum(probabilities, np.exp(LOG_FLOOR)))


def first_best(scores: FloatArray) -> int:
    """Return the lowest index whose score is within a tie of the best."""
    return int(np.argmax(scores >= scores.max() - TIE))


def check_predictions(log_probs: LogProbs, labels: Labels) -> None:
    """Raise a RelookError unless predictions and labels can be searched.

    Expected are normalised log-probabilities `[candidate, image, class]`, labels `[image]`.
    """
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
    for candidate, each in enumerate(log_probs):
        _check_rows(each, candidate)


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
    top = log_probs.max(axis=1)
    high = np.flatnonzero(~(top <= _NORMALISED_WITHIN))
    if len(high):
        raise RelookError(
            f"predictions: expected log-probabilities, which are at most 0, got {top[high[0]]} "
            f"at candidate {candidate}, image {high[0]}: pass the model's log_softmax"
        )
    with np.errstate(divide="ignore"):  # a row of zeros: −inf, and refused below
        total = np.log(np.exp(log_probs, dtype=np.float64).sum(axis=1))
    off = np.flatnonzero(np.abs(total) > _NORMALISED_WITHIN)
    if len(off):
        raise RelookError(
            "predictions: expected probabilities that sum to 1, got a sum of "
            f"{np.exp(total[off[0]]):.6g} at candidate {candidate}, image {off[0]}: "
            "pass the model's log_softmax"
        )


def _check_length(length: int, start: Sequence[int], candidates: int) -> None:
    if isinstance(length, bool) or not isinstance(length, (int, np.integer)) or length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {length!r}")
    if len(start) > length:
        raise RelookError(f"expected at most {length} first picks, got {len(start)}")
    for pick in start:
        if not 0 <= pick < candidates:
            raise RelookError(f"expected first picks from 0 to {candidates - 1}, got {pick!r}")
