"""The greedy loop (the paper's Algorithm 1), its picks, and how candidates are scored.

Small problems, and objectives other than the calibrated log-likelihood, are scored by NumPy
(`PlainScorer`); large ones by compiled scorers (`kernels/`), which are tested to find the same
picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from relook.foundation.progress import StepProgress
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import (
    LOG_FLOOR,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
)
from relook.selection.objectives import OBJECTIVES, Objective

COMPILED_FROM = 2_000_000
"""The values that predictions must have for the compiled kernels to be worth their compilation."""

COMPACT_FROM = 201
"""The compact form is used from this many classes on."""

_CONSERVATIVE_SEARCHES = 5  # greedy ones that a conservative search takes, about

TIE = 1e-9
"""Scores that differ by at most this are equal; the lowest index wins."""

BLOCK_BYTES = 256 << 20
"""The memory that scoring one block of candidates may take, about."""

ARRAYS_IN_FLIGHT = 5
"""Float64 copies of a block of candidates while it is scored."""


@dataclass(frozen=True)
class Pick:
    """A candidate as the policy's next entry, and the policy's score and temperature with it."""

    candidate: int
    score: float
    temperature: float


@dataclass(frozen=True)
class SearchResult:
    """The candidates picked, in order, with the score and temperature of each prefix."""

    picks: tuple[int, ...]
    scores: tuple[float, ...]
    temperatures: tuple[float, ...]
    threshold: float | None = None
    """The standard errors by which a pick had to beat its default, in a conservative selection;
    the first few picks had to by more."""
    soft_targets: str | None = None
    """The average of views behind the soft targets of a conservative selection."""
    view_temperature: float = 1.0
    """The view temperature of the averages that are scored."""

    @classmethod
    def of(cls, picks: Sequence[Pick]) -> SearchResult:
        """Return the result of these picks."""
        return cls(
            tuple(pick.candidate for pick in picks),
            tuple(pick.score for pick in picks),
            tuple(pick.temperature for pick in picks),
        )


class Scorer(Protocol):
    """Finds the best candidate of a pool for the policy's next entry, or scores a given one.

    `mean` `[n, c]` is the average probability of the entries before number `step`; `temperature`,
    the one that fits them, is a first guess.
    """

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; in a tie, the first."""

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
        """Return the best candidate; in a tie, the first."""
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

    `mean` `[n, c]` is the average of the entries before it; `temperature`, the one that fits them,
    is a first guess. A candidate's score is the same to the last bit in any block.
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
            scores[part] = [objective.score(one, labels, weights) for one in log_q]
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


def is_large(values: int, *, conservative: bool) -> bool:
    """Whether predictions with this many values are worth compiling the kernels for."""
    return values * (_CONSERVATIVE_SEARCHES if conservative else 1) >= COMPILED_FROM


@dataclass(frozen=True)
class Scoring:
    """How candidates are scored: the objective, and the resources."""

    objective: Objective
    compiled: bool = False
    threads: int | None = None
    memory: int = 16 << 30

    def open(
        self, log_probs: LogProbs, labels: Labels, weights: FloatArray | None
    ) -> AbstractContextManager[Scorer]:
        """Return a scorer of predictions `[candidate, image, class]` for a `with` block."""
        if not self.compiled:
            return nullcontext(PlainScorer(log_probs, labels, self.objective, weights))
        from relook.selection.kernels.compact import CompactScorer  # numba: only where it pays
        from relook.selection.kernels.scorer import CompiledScorer
        from relook.selection.plan import check_memory

        if log_probs.shape[2] >= COMPACT_FROM:
            return CompactScorer(log_probs, labels, weights, self.threads, self.memory)
        check_memory(log_probs.shape, self.memory)
        return CompiledScorer(log_probs, labels, weights, self.threads)


def search_with(
    scorer: Scorer,
    log_probs: LogProbs,
    length: int,
    start: Sequence[int] = (),
    progress: StepProgress | None = None,
    picked: Callable[[Pick], None] | None = None,
) -> SearchResult:
    """Pick `length` entries one by one, of which `start` are given."""
    mean = np.zeros(log_probs.shape[1:])  # the policy's average probabilities, π
    temperature = 1.0
    picks: list[Pick] = []
    for step in range(1, length + 1):
        if step <= len(start):
            pick = scorer.only(int(start[step - 1]), mean, step, temperature)
        else:
            pick = scorer.best(mean, step, temperature)
        mean = extended_mean(mean, log_probs[pick.candidate], step)
        temperature = pick.temperature
        picks.append(pick)
        if picked is not None and step > len(start):
            picked(pick)
        if progress is not None:
            progress(step, length, pick.score)
    return SearchResult.of(picks)
