"""What a greedy search picks and how a pick is scored; the plain scorer, by NumPy.

`PlainScorer` takes any objective and is what the compiled scorers (`kernels/`) are tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import (
    LOG_FLOOR,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
)
from relook.selection.objectives import OBJECTIVES, Objective

TIE = 1e-9
"""Scores that differ by at most this are equal, and the lowest index is picked."""

BLOCK_BYTES = 256 << 20
"""About how much memory the scoring of one block of candidates may take."""

ARRAYS_IN_FLIGHT = 5
"""Float64 copies of a block of candidates while it is scored."""


@dataclass(frozen=True)
class Pick:
    """A candidate as the policy's next entry: the score and the temperature with it."""

    candidate: int
    score: float
    temperature: float


@dataclass(frozen=True)
class SearchResult:
    """The candidates picked, in order; score and temperature of each prefix of the policy."""

    picks: tuple[int, ...]
    scores: tuple[float, ...]
    temperatures: tuple[float, ...]
    threshold: float | None = None
    """How many standard errors a pick had to beat its default by, in a conservative selection."""
    soft_targets: str | None = None
    """Which average of views gave the soft targets of a conservative selection."""

    @classmethod
    def of(cls, picks: Sequence[Pick]) -> SearchResult:
        """Return the result that these picks make."""
        return cls(
            tuple(pick.candidate for pick in picks),
            tuple(pick.score for pick in picks),
            tuple(pick.temperature for pick in picks),
        )


class Scorer(Protocol):
    """What knows the pool: it finds the best candidate for an entry, or scores a given one.

    `mean` `[n, c]` is the average probability of the entries before number `step`, and
    `temperature` the one that fits them: a first guess.
    """

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""


@dataclass(frozen=True)
class PlainScorer:
    """Scores every candidate by NumPy, under any objective."""

    log_probs: LogProbs
    labels: Labels
    objective: Objective
    weights: FloatArray | None

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""
        scores = self._scores(self.log_probs, mean, step, temperature)
        best = first_best(scores)
        return self._pick(best, scores[best], mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        scores = self._scores(self.log_probs[candidate][None], mean, step, temperature)
        return self._pick(candidate, scores[0], mean, step, temperature)

    def _scores(
        self, log_probs: LogProbs, mean: FloatArray, step: int, temperature: float
    ) -> FloatArray:
        return score_candidates(
            log_probs, self.labels, mean, step, self.objective, self.weights, temperature
        )

    def _pick(
        self, candidate: int, score: float, mean: FloatArray, step: int, temperature: float
    ) -> Pick:
        log_q = floored_log(extended_mean(mean, self.log_probs[candidate], step))
        _, fitted = calibrated_log_likelihood(log_q, self.labels, self.weights, start=temperature)
        return Pick(candidate, float(score), fitted)


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
    if objective is OBJECTIVES["ll"]:  # only the labels' probabilities matter
        rows = np.arange(len(labels))
        log_probs, mean = log_probs[:, rows, labels, None], mean[rows, labels, None]
        labels = np.zeros_like(labels)
    block = max(1, block_bytes // (ARRAYS_IN_FLIGHT * mean.nbytes))
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
