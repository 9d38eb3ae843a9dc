"""Conservative selection: quasi-random views unless another candidate proves better.

Among hundreds of candidates and a few thousand images the best score belongs to luck as much as
to worth. So each step has a default, the first of some given views that is not yet in the policy,
and the best candidate takes its place only if its gain over it, image by image, is larger than
`threshold` standard errors: the one-standard-error rule (Breiman et al. 1984), with the number of
standard errors left open.

Which of hundreds of candidates is best is decided by few uncertain images, and a label says of such
an image only what it happened to be. Soft targets, averages of many views, say how likely each
class is. The labels decide which average to trust: that is a question with little noise, because
many views are in each. Then picks are scored by a mixture of both, in which labels count for more
the more of them there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relook.foundation.progress import StepProgress, part_of
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.intervals import Groups, mean_and_error
from relook.numerics.view_temperature import choose_view_temperature
from relook.selection.greedy import (
    COMPACT_FROM,
    Pick,
    PlainScorer,
    Scorer,
    Scoring,
    SearchResult,
    extended_mean,
    first_best,
    floored_log,
    search_with,
)
from relook.selection.objectives import OBJECTIVES
from relook.selection.predictions import tempered_pool

QUASI_RANDOM, POOL, SEARCH = "quasi-random", "pool", "search"
"""What an average is of: the quasi-random views, the whole pool, or policies found by folds."""

THRESHOLDS = {QUASI_RANDOM: 3.0, POOL: 1.0, SEARCH: 1.0}
"""Standard errors that a pick must gain over its default. Where no average is better than that of
the quasi-random views, which are the defaults, there is more reason to keep to them."""

_FIRST = 5
"""How many entries have to reach the highest threshold whatever the targets: they are in the policy
of every budget, and defaults complement each other, so what only seems better costs most there."""

_FEW = 300
"""Below so many independent images all entries have to reach it: what seems better is luck."""

_GIVEN = 2
"""How many entries are defaults in their order even where these are chosen, if images are few:
which crop is the best partner of the plain image is luck then."""

MOST_CLASSES = 4
"""How many classes an image may have in its targets."""

_EVEN_IMAGES = 600  # with this many, labels and soft targets count the same
_LEAST_SHARE = 0.02
_FOLDS = 4
_TRIAL = 20  # entries of a fold's policy: more add little to an average
_SAMPLE = 48  # of the pool's candidates, where an average of all would take minutes
MOST_VALUES = 1 << 29
"""Values of the predictions with images repeated, at most: about 2 GB."""


@dataclass(frozen=True)
class SoftTargets:
    """An average of many views, calibrated: `targets` `[image, class]`."""

    name: str
    targets: FloatArray
    labels: Labels

    @cached_property
    def log_likelihoods(self) -> FloatArray:
        """What it gives each image's label, `[image]`."""
        rows = np.arange(len(self.labels))
        return np.asarray(np.log(np.maximum(self.targets[rows, self.labels], 1e-35)))


def make_soft_targets(
    name: str, average: FloatArray, labels: Labels, weights: FloatArray
) -> SoftTargets:
    """Return average probabilities `[image, class]` at the temperature that fits the labels."""
    log_q = floored_log(average)
    _, temperature = calibrated_log_likelihood(log_q, labels, weights)
    log_q /= temperature
    log_q -= np.logaddexp.reduce(log_q, axis=1, keepdims=True)
    return SoftTargets(name, np.exp(log_q), labels)


def average_of(
    log_probs: LogProbs, candidates: Sequence[int], images: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return the mean probability of candidates, `[image, class]`; of some images, if said."""
    total: FloatArray | float = 0.0
    for candidate in candidates:  # one after the other: they may be a map of a large file
        one = log_probs[candidate]
        total = total + np.exp(one if images is None else one[images], dtype=np.float64)
    return np.asarray(total / len(candidates))


def choose_soft_targets(
    found: Sequence[SoftTargets], weights: FloatArray, groups: Groups | None = None
) -> SoftTargets:
    """Return the targets that fit the labels best; later ones only if by a standard error."""
    best = found[0]
    for other in found[1:]:
        gains = other.log_likelihoods - best.log_likelihoods
        gain, error = mean_and_error(gains, weights, groups)
        if gain > error:
            best = other
    return best


@dataclass(frozen=True)
class TargetRows:
    """Images once for each class that they may be: which image, which class, how likely."""

    images: NDArray[np.int64]
    labels: Labels
    shares: FloatArray


def soft_rows(soft: SoftTargets, independent: int) -> TargetRows:
    """Return the images with the classes that the soft targets and the labels give them.

    `independent` is how many groups of images there are.
    """
    trust = independent / (independent + _EVEN_IMAGES)
    targets = (1 - trust) * soft.targets
    targets[np.arange(len(soft.labels)), soft.labels] += trust
    likely = np.argsort(-targets, axis=1, kind="stable")[:, :MOST_CLASSES]
    shares = np.take_along_axis(targets, likely, axis=1)
    shares[:, 1:][shares[:, 1:] < _LEAST_SHARE] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    image, place = np.nonzero(shares)
    return TargetRows(image, likely[image, place], shares[image, place])


def hard_rows(labels: Labels) -> TargetRows:
    """Return each image once, with its label."""
    return TargetRows(np.arange(len(labels)), labels, np.ones(len(labels)))


class ConservativeScorer:
    """Picks as another scorer does, but only what proves better than the step's default.

    `chooser` knows the predictions `log_probs` of the `rows`, which weigh `weights`; `reporter`
    knows the images and their labels, and says what a pick scores. A step's default is the next of
    the `defaults`; after the first `given`, if that is a number, the best of those left.
    `thresholds` has one number of standard errors per step; the last serves all later ones.
    """

    def __init__(
        self,
        chooser: Scorer,
        rows: TargetRows,
        log_probs: LogProbs,
        weights: FloatArray,
        reporter: Scorer,
        defaults: Sequence[int],
        thresholds: Sequence[float],
        groups: Groups | None = None,
        given: int | None = None,
    ) -> None:
        self._groups = groups
        self._chooser, self._reporter = chooser, reporter
        self._rows, self._log_probs, self._weights = rows, log_probs, weights
        self._defaults = tuple(dict.fromkeys(defaults))
        self._left = list(self._defaults)
        self._thresholds, self._given = thresholds, given

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate if it beats the default, and the default otherwise."""
        own = mean[self._rows.images]
        best = self._chooser.best(own, step, temperature)
        left = self._left[:1] if self._given is None or step <= self._given else self._left
        if best.candidate not in left:
            picks = [self._chooser.only(one, own, step, temperature) for one in left]
            default = picks[first_best(np.array([pick.score for pick in picks]))]
            if not self._proven(best, default, own, step):
                best = default
        return self.only(best.candidate, mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score by the labels."""
        if candidate in self._left:
            self._left.remove(candidate)
        # Once all are in, each counting once more keeps their average.
        self._left = self._left or list(self._defaults)
        return self._reporter.only(candidate, mean, step, temperature)

    def _proven(self, best: Pick, default: Pick, mean: FloatArray, step: int) -> bool:
        better, worse = (
            log_likelihoods(
                extended_mean(mean, self._log_probs[pick.candidate], step),
                self._rows.labels,
                pick.temperature,
            )
            for pick in (best, default)
        )
        gains = self._by_image(self._rows.shares * (better - worse))
        gain, error = mean_and_error(gains, self._by_image(self._weights), self._groups)
        return gain > self._thresholds[min(step, len(self._thresholds)) - 1] * error

    def _by_image(self, values: FloatArray) -> FloatArray:
        """Add up the rows' values, `[image]`."""
        return np.bincount(self._rows.images, values).astype(np.float64)


@dataclass(frozen=True)
class Problem:
    """What is selected from, by what labels, and how it is scored."""

    scoring: Scoring
    log_probs: LogProbs
    labels: Labels
    weights: FloatArray
    groups: Groups

    @property
    def independent(self) -> int:
        """How many groups of images there are."""
        return int(self.groups.max()) + 1

    @property
    def classes(self) -> int:
        """How many there are."""
        return int(self.log_probs.shape[2])


def conservative_search(
    problem: Problem,
    length: int,
    defaults: Sequence[int],
    *,
    in_order: bool = True,
    preselected: bool = False,
    view_temperature: float | None = None,
    start: Sequence[int] = (),
    progress: StepProgress | None = None,
    picked: Callable[[Pick], None] | None = None,
) -> SearchResult:
    """Search with the average and the soft targets that the labels choose; see `greedy_search`."""
    kappa = view_temperature
    if kappa is None:
        views = [problem.log_probs[one] for one in dict.fromkeys(defaults)]
        kappa = choose_view_temperature(views, problem.labels, problem.weights, problem.groups)
    log_probs = tempered_pool(problem.log_probs, kappa, problem.scoring.threads)
    problem = replace(problem, log_probs=log_probs)
    trials = _FOLDS * _TRIAL if _has_folds(problem) else 0
    total = trials + length
    targets = _soft_targets(problem, defaults, preselected, part_of(progress, 0, total))
    rows = hard_rows(problem.labels)
    if log_probs.size <= MOST_VALUES and problem.classes < COMPACT_FROM:
        soft = soft_rows(targets, problem.independent)
        if len(log_probs) * len(soft.images) * problem.classes <= MOST_VALUES:
            rows = soft
    highest, rest = max(THRESHOLDS.values()), part_of(progress, trials, total)
    threshold = THRESHOLDS[targets.name] if problem.independent >= _FEW else highest
    thresholds = (*[highest] * _FIRST, threshold)
    given = None if in_order else _GIVEN if problem.independent < _FEW else 0
    with _open_conservative(problem, rows, defaults, thresholds, given) as scorer:
        found = search_with(scorer, log_probs, length, start, rest, picked)
    return replace(found, threshold=threshold, soft_targets=targets.name, view_temperature=kappa)


def _has_folds(problem: Problem) -> bool:
    """Whether policies are searched by folds: many classes take minutes, few images say nothing."""
    return problem.classes < COMPACT_FROM and problem.independent >= 2 * _FOLDS


def log_likelihoods(probabilities: FloatArray, labels: Labels, temperature: float) -> FloatArray:
    """Return each image's log-likelihood at this temperature, `[n]`."""
    log_q = floored_log(probabilities) / temperature
    log_q -= np.logaddexp.reduce(log_q, axis=1, keepdims=True)
    return np.asarray(log_q[np.arange(len(labels)), labels])


@contextmanager
def _open_conservative(
    problem: Problem,
    rows: TargetRows,
    defaults: Sequence[int],
    thresholds: Sequence[float],
    given: int | None,
) -> Iterator[ConservativeScorer]:
    log_probs, labels, weights = problem.log_probs, problem.labels, problem.weights
    alone = np.array_equal(rows.labels, labels)
    if not alone:
        log_probs = np.ascontiguousarray(log_probs[:, rows.images])
        weights = weights[rows.images] * rows.shares
    with problem.scoring.open(log_probs, rows.labels, weights) as chooser:
        reporter = chooser
        if not alone:
            objective = OBJECTIVES["cll"]
            reporter = PlainScorer(problem.log_probs, labels, objective, problem.weights)
        rest = defaults, thresholds, problem.groups, given
        yield ConservativeScorer(chooser, rows, log_probs, weights, reporter, *rest)


def _soft_targets(
    problem: Problem, defaults: Sequence[int], preselected: bool, progress: StepProgress | None
) -> SoftTargets:
    log_probs, labels, weights = problem.log_probs, problem.labels, problem.weights
    averages = {QUASI_RANDOM: average_of(log_probs, tuple(dict.fromkeys(defaults)))}
    if not preselected:
        averages[POOL] = average_of(log_probs, _of_pool(len(log_probs), problem.classes))
    if _has_folds(problem):
        averages[SEARCH] = _by_folds(problem, progress)
    found = [make_soft_targets(name, each, labels, weights) for name, each in averages.items()]
    return choose_soft_targets(found, weights, problem.groups)


def _of_pool(candidates: int, classes: int) -> Sequence[int]:
    """Return the candidates that stand for the pool: all, or an even sample."""
    if classes < COMPACT_FROM or candidates <= _SAMPLE:
        return range(candidates)
    return [int(one) for one in np.linspace(0, candidates - 1, _SAMPLE).round()]


def _by_folds(problem: Problem, progress: StepProgress | None) -> FloatArray:
    """Return each image's average under the policy that was found without its fold."""
    average = np.empty(problem.log_probs.shape[1:])
    for fold in range(_FOLDS):
        outside = problem.groups % _FOLDS == fold
        picks = _picks_without(problem, outside, part_of(progress, fold * _TRIAL, _FOLDS * _TRIAL))
        average[outside] = average_of(problem.log_probs, picks, outside)
    return average


def _picks_without(
    problem: Problem, outside: NDArray[np.bool_], progress: StepProgress | None
) -> tuple[int, ...]:
    weights = np.where(outside, 0.0, problem.weights)
    with problem.scoring.open(problem.log_probs, problem.labels, weights) as scorer:
        return search_with(scorer, problem.log_probs, _TRIAL, progress=progress).picks
