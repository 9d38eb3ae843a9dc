"""Greedy policy search (the paper's Algorithm 1) over a pool's predictions.

Small problems, and objectives other than the calibrated log-likelihood, are scored by NumPy;
large ones by compiled kernels, which find the same picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from relook.errors import RelookError
from relook.foundation.progress import StepProgress
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import (
    LOG_FLOOR,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
)
from relook.selection.checks import (
    check_defaults,
    check_length,
    check_predictions,
    check_shapes,
    group_numbers,
)
from relook.selection.needs import COMPACT_FROM, check_memory
from relook.selection.objectives import (
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

COMPILED_FROM = 2_000_000
"""How many values predictions must have to be worth the compiled kernels' first use."""

_STEADY_SEARCHES = 5  # about how many a steady one makes on its way
ARRAYS_IN_FLIGHT = 5
"""Float64 copies of a block of candidates while it is scored."""


@dataclass(frozen=True)
class SearchResult:
    """The candidates picked, in order; score and temperature of each prefix of the policy."""

    picks: tuple[int, ...]
    scores: tuple[float, ...]
    temperatures: tuple[float, ...]
    caution: float | None = None
    """How many standard errors a pick had to beat its default by, in a steady selection."""
    guide: str | None = None
    """Which average of views the picks of a steady selection were measured by (guide.py)."""


@dataclass(frozen=True)
class Pick:
    """A candidate as the policy's next entry: the score and the temperature with it."""

    candidate: int
    score: float
    temperature: float


class Scorer(Protocol):
    """What knows the pool: it finds the best candidate for an entry, or scores a given one.

    `mean` `[n, c]` is the average probability of the entries before number `step`, and
    `temperature` the one that fits them: a first guess.
    """

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""


def greedy_search(
    log_probs: LogProbs,
    labels: Labels,
    length: int,
    objective: str | UserObjective = "cll",
    *,
    balanced: bool = False,
    progress: StepProgress | None = None,
    start: Sequence[int] = (),
    threads: int | None = None,
    memory: int = 16 << 30,
    picked: Callable[[Pick], None] | None = None,
    defaults: Sequence[int] = (),
    groups: ArrayLike | None = None,
    preselected: bool = False,
) -> SearchResult:
    """Pick `length` candidates, each the best addition to the average so far; repeats allowed.

    `log_probs` is `[candidate, image, class]`, `labels` `[image]`. `balanced` gives each class
    the same weight, in the score and in the temperatures, which are always fitted by cLL.
    `start` holds the first picks, made beforehand and counted in `length`; a search that goes
    on from its own first picks ends in the same result. `progress(done, total, score)` is
    called after each step, and `picked(pick)` with each entry beyond `start`. `threads`
    (default: all cores) changes nothing but the time.

    With `defaults` the selection is steady (steady.py): a step takes the first of these
    candidates that is not picked yet, unless another one is better by more than noise; `groups`
    `[image]` says which images belong together, which is less proof than as many single ones.
    `preselected` says that the same labels decided who the candidates are: a good average of
    all of them then proves nothing, and guides no selection.

    With more than 200 classes, cLL and large predictions (which may be a memory map, float16
    too), a compact form proposes candidates and the full predictions decide; it takes at most
    about `memory` bytes. Every score is exact.
    """
    log_probs, labels = np.asarray(log_probs), np.asarray(labels)
    check_shapes(log_probs, labels)
    check_length(length, start, len(log_probs))
    defaults = check_defaults(defaults, len(log_probs))
    labels = labels.astype(np.int64)
    chosen = resolve_objective(objective)
    weights = class_weights(labels) if balanced else None
    compiled = chosen is OBJECTIVES["cll"] and is_large(log_probs.size, steady=bool(defaults))
    if not compiled:
        check_predictions(log_probs, labels)

    def scorer_for(
        log_probs: LogProbs, labels: Labels, weights: FloatArray | None
    ) -> AbstractContextManager[Scorer]:
        if compiled:
            return _compiled_scorer(log_probs, labels, weights, threads, memory)
        return nullcontext(PlainScorer(log_probs, labels, chosen, weights))

    if not defaults:
        with scorer_for(log_probs, labels, weights) as scorer:
            return search_with(scorer, log_probs, length, start, progress, picked)
    if chosen is not OBJECTIVES["cll"]:
        raise RelookError(f"a steady selection needs the objective cll, got {objective!r}")
    from relook.selection.conservative import Material, steady_search

    even = np.ones(len(labels)) if weights is None else weights
    return steady_search(
        Material(scorer_for, log_probs, labels, even, group_numbers(groups, len(labels))),
        length,
        defaults,
        preselected=preselected,
        start=start,
        progress=progress,
        picked=picked,
    )


def is_large(values: int, *, steady: bool) -> bool:
    """Whether predictions of so many values are worth the compiled kernels."""
    return values * (_STEADY_SEARCHES if steady else 1) >= COMPILED_FROM


def _compiled_scorer(
    log_probs: LogProbs,
    labels: Labels,
    weights: FloatArray | None,
    threads: int | None,
    memory: int,
) -> AbstractContextManager[Scorer]:
    from relook.selection.kernels.compact import CompactScorer  # numba: only where it pays
    from relook.selection.kernels.fast import FastScorer

    if log_probs.shape[2] >= COMPACT_FROM:
        return CompactScorer(log_probs, labels, weights, threads, memory)
    check_memory(log_probs.shape, memory)
    return FastScorer(log_probs, labels, weights, threads)


def search_with(
    scorer: Scorer,
    log_probs: LogProbs,
    length: int,
    start: Sequence[int] = (),
    progress: StepProgress | None = None,
    picked: Callable[[Pick], None] | None = None,
) -> SearchResult:
    """Run the search itself: pick, extend the average, go on."""
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
    return SearchResult(
        tuple(pick.candidate for pick in picks),
        tuple(pick.score for pick in picks),
        tuple(pick.temperature for pick in picks),
    )


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
