"""Selection that resists luck: a pick must beat the next evenly spread view by more than noise.

Among hundreds of candidates and a few thousand images the best score belongs to luck as much as
to worth. So each step has a default, the first of some given views that is not yet in the policy,
and the best candidate takes its place only if its gain over it, image by image, is larger than
`caution` standard errors. How much caution pays differs between networks: folds of the images say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
from numpy.typing import NDArray

from relook.calibration import FloatArray, Labels, LogProbs
from relook.selection.greedy import (
    Pick,
    Progress,
    Scorer,
    SearchResult,
    extended_mean,
    floored_log,
    part_of,
    search_with,
)

CAUTIONS = (0.0, 1.0, 2.0, 3.0, math.inf)
"""What the folds choose from: from plain greedy selection to the default views alone."""

USUAL_CAUTION = 2.0
"""For predictions too large to be searched twenty times."""

_FOLDS = 4
_BUDGETS = (1, 2, 3, 5, 10, 20)
_CLOSE = 0.5  # standard errors from the best in which more caution is preferred

Scoring = Callable[[FloatArray], AbstractContextManager[Scorer]]
"""Opens a scorer for weights `[n]` of the images."""


class SteadyScorer:
    """Picks as another scorer does, but only what proves better than the step's default."""

    def __init__(
        self,
        scorer: Scorer,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray,
        defaults: Sequence[int],
        caution: float,
    ) -> None:
        self._scorer = scorer
        self._log_probs = log_probs
        self._labels = labels
        self._weights = weights
        self._defaults = tuple(dict.fromkeys(defaults))
        self._left = list(self._defaults)
        self._caution = caution

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate if it beats the default, and the default otherwise."""
        if math.isinf(self._caution):
            return self.only(self._left[0], mean, step, temperature)
        best = self._scorer.best(mean, step, temperature)
        if best.candidate != self._left[0]:
            default = self._scorer.only(self._left[0], mean, step, temperature)
            if not self._proven(best, default, mean, step):
                best = default
        return self._used(best)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        return self._used(self._scorer.only(candidate, mean, step, temperature))

    def _used(self, pick: Pick) -> Pick:
        if pick.candidate in self._left:
            self._left.remove(pick.candidate)
        # Once all are in, each counting once more keeps their average.
        self._left = self._left or list(self._defaults)
        return pick

    def _proven(self, best: Pick, default: Pick, mean: FloatArray, step: int) -> bool:
        better, worse = (
            log_likelihoods(
                extended_mean(mean, self._log_probs[pick.candidate], step),
                self._labels,
                pick.temperature,
            )
            for pick in (best, default)
        )
        gain, error = _mean_and_error(better - worse, self._weights)
        return gain > self._caution * error


def choose_caution(
    open_scorer: Scoring,
    log_probs: LogProbs,
    labels: Labels,
    weights: FloatArray,
    length: int,
    defaults: Sequence[int],
    progress: Progress | None = None,
) -> float:
    """Return the caution whose policies do best on images that did not choose them.

    Each fold of the images is left out in turn; a policy counts by its mean over budgets. Of
    cautions that are as good within half a standard error the largest is taken.
    """
    worth = np.zeros((len(CAUTIONS), len(labels)))
    length = _trial_length(length)
    steps = trial_steps(length)
    folds = np.arange(len(labels)) % _FOLDS  # the images come in no order
    for fold in range(_FOLDS):
        inside = np.where(folds == fold, 0.0, weights)
        outside = np.flatnonzero(folds == fold)
        with open_scorer(inside) as scorer:
            for at, caution in enumerate(CAUTIONS):
                steady = SteadyScorer(scorer, log_probs, labels, inside, defaults, caution)
                before = (fold * len(CAUTIONS) + at) * length
                tell = part_of(progress, before, steps)
                found = search_with(steady, log_probs, length, progress=tell)
                worth[at, outside] = _worth(found, log_probs, labels, outside)
    means = [float(np.average(each, weights=weights)) for each in worth]
    best = int(np.argmax(means))

    def as_good(at: int) -> bool:
        lost, error = _mean_and_error(worth[best] - worth[at], weights)
        return lost <= _CLOSE * error

    return CAUTIONS[max(at for at in range(len(CAUTIONS)) if at == best or as_good(at))]


def trial_steps(length: int) -> int:
    """Return how many steps the searches that choose the caution take together."""
    return len(CAUTIONS) * _FOLDS * _trial_length(length)


def _trial_length(length: int) -> int:
    return min(length, _BUDGETS[-1])  # what more entries add no longer tells cautions apart


def log_likelihoods(probabilities: FloatArray, labels: Labels, temperature: float) -> FloatArray:
    """Return each image's log-likelihood at this temperature, `[n]`."""
    log_q = floored_log(probabilities) / temperature
    log_q -= np.logaddexp.reduce(log_q, axis=1, keepdims=True)
    return np.asarray(log_q[np.arange(len(labels)), labels])


def _worth(
    found: SearchResult, log_probs: LogProbs, labels: Labels, images: NDArray[np.int64]
) -> FloatArray:
    """Return the images' log-likelihoods under a policy, averaged over budgets: `[image]`."""
    mean = np.zeros((len(images), log_probs.shape[2]))
    budgets = [budget for budget in _BUDGETS if budget <= len(found.picks)]
    at_budget: dict[int, FloatArray] = {}
    for step, (pick, temperature) in enumerate(
        zip(found.picks, found.temperatures, strict=True), start=1
    ):
        mean = extended_mean(mean, log_probs[pick, images], step)
        values = log_likelihoods(mean, labels[images], temperature)
        views = len(set(found.picks[:step]))
        # A budget's policy is the longest one that it can pay.
        at_budget |= {budget: values for budget in budgets if views <= budget}
    total: FloatArray = np.mean([at_budget[budget] for budget in budgets], axis=0)
    return total


def _mean_and_error(values: FloatArray, weights: FloatArray) -> tuple[float, float]:
    shares = weights / weights.sum()
    mean = float(shares @ values)
    return mean, math.sqrt(float(shares**2 @ (values - mean) ** 2))
