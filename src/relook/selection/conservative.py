"""Conservative selection: quasi-random views unless another candidate proves better.

Among hundreds of candidates and a few thousand images, the best score is as much luck as merit. So
each step has a default, the first of some given views that is not yet in the policy, and the best
candidate replaces it only if its mean gain per image is larger than `threshold` standard errors:
the one-standard-error rule (Breiman et al. 1984) with a variable number of standard errors.

Few uncertain images decide which of hundreds of candidates is best, and the label of such an image
is a single sample. Soft targets, averages of many views, estimate how likely each class is. The
labels decide which average to trust, which they can do with little noise, as each average has many
views. Picks are then scored by a mixture of labels and soft targets; the more images there are, the
more the labels count.
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
"""The averages for soft targets: quasi-random views, the whole pool, policies found by folds."""

THRESHOLDS = {QUASI_RANDOM: 3.0, POOL: 1.0, SEARCH: 1.0}
"""Standard errors by which a pick must beat its default, for each average. If no average is better
than that of the quasi-random views, which are the defaults, there is more reason to keep them."""

_STRICT_ENTRIES = 5
"""The first entries, for which the highest threshold always holds: they are in the policy of every
budget, and defaults complement each other, so that a lucky pick costs most here."""

_FEW_IMAGES = 300
"""With fewer independent images the highest threshold holds for all entries."""

_ORDERED_ENTRIES = 2
"""If images are few, the first entries take the defaults in their order even if the best of them
may be chosen: which crop complements the plain image best would be luck."""

MOST_CLASSES = 4
"""The most classes that an image may have in its targets."""

_BALANCED_IMAGES = 600  # with this many, labels and soft targets count the same
_MIN_SHARE = 0.02
_FOLDS = 4
_FOLD_LENGTH = 20  # entries of a fold's policy: more add little to an average
_POOL_SAMPLE = 48  # candidates, if an average of the whole pool would take minutes
MOST_VALUES = 1 << 29
"""The most values of predictions with images repeated: about 2 GB."""


@dataclass(frozen=True)
class SoftTargets:
    """An average of many views, calibrated: `targets` `[image, class]`."""

    name: str
    targets: FloatArray
    labels: Labels

    @cached_property
    def log_likelihoods(self) -> FloatArray:
        """The log-probability of each image's label, `[image]`."""
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
    """Return the mean probability of candidates, `[image, class]`, on all or some images."""
    total: FloatArray | float = 0.0
    for candidate in candidates:  # one at a time: they may be mapped from a large file
        one = log_probs[candidate]
        total = total + np.exp(one if images is None else one[images], dtype=np.float64)
    return np.asarray(total / len(candidates))


def choose_soft_targets(
    found: Sequence[SoftTargets], weights: FloatArray, groups: Groups | None = None
) -> SoftTargets:
    """Return the targets that fit the labels best; later ones if better by a standard error."""
    best = found[0]
    for other in found[1:]:
        gains = other.log_likelihoods - best.log_likelihoods
        gain, error = mean_and_error(gains, weights, groups)
        if gain > error:
            best = other
    return best


@dataclass(frozen=True)
class TargetRows:
    """Images repeated once per possible class: place of the image, class, and its probability."""

    images: NDArray[np.int64]
    labels: Labels
    shares: FloatArray


def soft_rows(soft: SoftTargets, independent: int) -> TargetRows:
    """Return the images with their likely classes, by a mixture of soft targets and labels.

    `independent` is the number of groups of images.
    """
    trust = independent / (independent + _BALANCED_IMAGES)
    targets = (1 - trust) * soft.targets
    targets[np.arange(len(soft.labels)), soft.labels] += trust
    likely = np.argsort(-targets, axis=1, kind="stable")[:, :MOST_CLASSES]
    shares = np.take_along_axis(targets, likely, axis=1)
    shares[:, 1:][shares[:, 1:] < _MIN_SHARE] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    image, place = np.nonzero(shares)
    return TargetRows(image, likely[image, place], shares[image, place])


def hard_rows(labels: Labels) -> TargetRows:
    """Return each image once, with its label."""
    return TargetRows(np.arange(len(labels)), labels, np.ones(len(labels)))


class ConservativeScorer:
    """Picks another scorer's best candidate if it proves better than the step's default.

    `chooser` scores the `rows`, with predictions `log_probs` and `weights`; `reporter` scores
    images by their labels, for the result. A step's default is the next of the `defaults`, but
    after the first `ordered` steps (None: all) the best of those left. `thresholds` has a number
    of standard errors for each step; the last one holds for all later steps.
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
        ordered: int | None = None,
    ) -> None:
        self._groups = groups
        self._chooser, self._reporter = chooser, reporter
        self._rows, self._log_probs, self._weights = rows, log_probs, weights
        self._defaults = tuple(dict.fromkeys(defaults))
        self._left = list(self._defaults)
        self._thresholds, self._ordered = thresholds, ordered

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate if it beats the default, and the default otherwise."""
        own = mean[self._rows.images]
        best = self._chooser.best(own, step, temperature)
        left = self._left[:1] if self._ordered is None or step <= self._ordered else self._left
        if best.candidate not in left:
            picks = [self._chooser.only(candidate, own, step, temperature) for candidate in left]
            default = picks[first_best(np.array([pick.score for pick in picks]))]
            if not self._proves_better(best, default, own, step):
                best = default
        return self.only(best.candidate, mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score by the labels."""
        if candidate in self._left:
            self._left.remove(candidate)
        # Once all defaults are in, adding each of them again keeps their average.
        self._left = self._left or list(self._defaults)
        return self._reporter.only(candidate, mean, step, temperature)

    def _proves_better(self, best: Pick, default: Pick, mean: FloatArray, step: int) -> bool:
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
        """Return the sums of the rows' values, `[image]`."""
        return np.bincount(self._rows.images, values).astype(np.float64)


@dataclass(frozen=True)
class Problem:
    """The predictions to select from, their labels, and how they are scored."""

    scoring: Scoring
    log_probs: LogProbs
    labels: Labels
    weights: FloatArray
    groups: Groups

    @property
    def independent(self) -> int:
        """The number of groups of images."""
        return int(self.groups.max()) + 1

    @property
    def classes(self) -> int:
        """The number of classes."""
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
    """Search with the view temperature and soft targets that fit best; see `greedy_search`."""
    kappa = view_temperature
    if kappa is None:
        views = [problem.log_probs[candidate] for candidate in dict.fromkeys(defaults)]
        kappa = choose_view_temperature(views, problem.labels, problem.weights, problem.groups)
    log_probs = tempered_pool(problem.log_probs, kappa, problem.scoring.threads)
    problem = replace(problem, log_probs=log_probs)
    fold_steps = _FOLDS * _FOLD_LENGTH if _uses_folds(problem) else 0
    total = fold_steps + length
    targets = _choose_targets(problem, defaults, preselected, part_of(progress, 0, total))
    rows = hard_rows(problem.labels)
    if log_probs.size <= MOST_VALUES and problem.classes < COMPACT_FROM:
        soft = soft_rows(targets, problem.independent)
        if len(log_probs) * len(soft.images) * problem.classes <= MOST_VALUES:
            rows = soft
    few_images, highest = problem.independent < _FEW_IMAGES, max(THRESHOLDS.values())
    threshold = highest if few_images else THRESHOLDS[targets.name]
    thresholds = (*[highest] * _STRICT_ENTRIES, threshold)
    ordered = None if in_order else _ORDERED_ENTRIES if few_images else 0
    remaining = part_of(progress, fold_steps, total)
    with _open_conservative(problem, rows, defaults, thresholds, ordered) as scorer:
        found = search_with(scorer, log_probs, length, start, remaining, picked)
    return replace(found, threshold=threshold, soft_targets=targets.name, view_temperature=kappa)


def _uses_folds(problem: Problem) -> bool:
    """Whether policies are searched by folds, which takes minutes with many classes."""
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
    ordered: int | None,
) -> Iterator[ConservativeScorer]:
    log_probs, labels, weights = problem.log_probs, problem.labels, problem.weights
    is_hard = np.array_equal(rows.labels, labels)
    if not is_hard:
        log_probs = np.ascontiguousarray(log_probs[:, rows.images])
        weights = weights[rows.images] * rows.shares
    with problem.scoring.open(log_probs, rows.labels, weights) as chooser:
        reporter = chooser
        if not is_hard:
            objective = OBJECTIVES["cll"]
            reporter = PlainScorer(problem.log_probs, labels, objective, problem.weights)
        yield ConservativeScorer(
            chooser,
            rows,
            log_probs,
            weights,
            reporter,
            defaults,
            thresholds,
            problem.groups,
            ordered,
        )


def _choose_targets(
    problem: Problem, defaults: Sequence[int], preselected: bool, progress: StepProgress | None
) -> SoftTargets:
    log_probs, labels, weights = problem.log_probs, problem.labels, problem.weights
    averages = {QUASI_RANDOM: average_of(log_probs, tuple(dict.fromkeys(defaults)))}
    if not preselected:
        averages[POOL] = average_of(log_probs, _pool_sample(len(log_probs), problem.classes))
    if _uses_folds(problem):
        averages[SEARCH] = _cross_validated_average(problem, progress)
    found = [make_soft_targets(name, each, labels, weights) for name, each in averages.items()]
    return choose_soft_targets(found, weights, problem.groups)


def _pool_sample(candidates: int, classes: int) -> Sequence[int]:
    """Return the candidates that represent the pool: all, or evenly spaced ones."""
    if classes < COMPACT_FROM or candidates <= _POOL_SAMPLE:
        return range(candidates)
    return [int(place) for place in np.linspace(0, candidates - 1, _POOL_SAMPLE).round()]


def _cross_validated_average(problem: Problem, progress: StepProgress | None) -> FloatArray:
    """Return each image's average under the policy found without its fold, `[image, class]`."""
    average = np.empty(problem.log_probs.shape[1:])
    for fold in range(_FOLDS):
        held_out = problem.groups % _FOLDS == fold
        report = part_of(progress, fold * _FOLD_LENGTH, _FOLDS * _FOLD_LENGTH)
        weights = np.where(held_out, 0.0, problem.weights)
        with problem.scoring.open(problem.log_probs, problem.labels, weights) as scorer:
            found = search_with(scorer, problem.log_probs, _FOLD_LENGTH, progress=report)
        average[held_out] = average_of(problem.log_probs, found.picks, held_out)
    return average
