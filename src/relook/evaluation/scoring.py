"""Methods × budgets × runs: predicted once, then cross-validated prefix by prefix.

A *line* is one method in one run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import Fitted
from relook.evaluation.cross_validation import Evaluation, partitions
from relook.evaluation.setup import BASELINE_DRAWS, Setup
from relook.evaluation.unseen import Fold, folds_of
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import temper
from relook.numerics.metrics import mutual_information
from relook.numerics.view_temperature import learned_view_temperatures, prefix_averages
from relook.policy import Policy
from relook.predictions.passes import ReadViews, View, predict_distinct

_RUN_STRIDE = 1 << 16  # view indices of one run: no two runs share fresh draws

_USUAL, _ALL_IMAGES = "usual", "all images"  # keys of view temperatures, besides those of parts

ALL_PREFIXES_TO = 20
"""Up to this number of views every prefix is scored, for the curves; beyond, only the budgets."""

Key = tuple[str, int]
"""A method and a budget."""


@dataclass(frozen=True)
class MethodRun:
    """One method in one run: its policy for the largest budget.

    `folds` have the images on which other policies take its place; empty: none.
    """

    method: str
    run: int
    policy: Policy
    folds: tuple[Fold, ...] = ()

    @property
    def order(self) -> Indices:
        """The place of each image among those of the folds, one fold after another."""
        return np.argsort(np.concatenate([one.places for one in self.folds]))

    @property
    def parts(self) -> tuple[MethodRun, ...]:
        """The line once for each fold, with that fold's policy."""
        return tuple(replace(self, policy=one.policy, folds=()) for one in self.folds) or (self,)

    @property
    def views(self) -> list[View]:
        """The views to predict, one per entry."""
        first = self.run * _RUN_STRIDE
        return [View(sub, first + i) for one in self.parts for i, sub in enumerate(one.policy)]


Lengths = Callable[[Setup, MethodRun], Mapping[int, int]]
"""How many entries of a line are scored for each budget."""


@dataclass(frozen=True)
class Scored:
    """One line at one budget: its mean log-probabilities `[n, c]` and how good they are.

    `fitted` is None unless both averages are scored. `read` returns the views' own predictions.
    """

    line: MethodRun
    budget: int
    views: int
    log_probs: FloatArray
    evaluation: Evaluation
    fitted: Fitted | None
    read: ReadViews

    @property
    def key(self) -> Key:
        """The method and the budget."""
        return self.line.method, self.budget


def lines_of(setup: Setup, method: str, policies: Sequence[Policy]) -> list[MethodRun]:
    """Return a method's runs: other seeds if it is random, other draws for a fresh policy."""
    most = setup.budgets[-1]
    if method == POLICY_METHOD:
        # With fixed draws every run has the same views, so one is enough.
        repeats = 1 if policies[0].is_fixed else setup.runs
        several = policies if len(policies) > 1 else [policies[0]] * repeats
        return [policy_run(setup, method, run, one) for run, one in enumerate(several)]
    row = BASELINES[method]
    made = (
        row.policy(
            setup.recipe, row.budget or most, setup.seed + run, BASELINE_DRAWS, setup.options
        )
        for run in range(setup.runs if row.random else 1)
    )
    return [MethodRun(method, run, policy) for run, policy in enumerate(made)]


def policy_run(setup: Setup, method: str, run: int, policy: Policy) -> MethodRun:
    """Return a run of a policy; its halves take its place on the images that it was found on."""
    own = policy.for_budget(setup.budgets[-1])
    folds = tuple(
        Fold(places, one.for_budget(own.views)) for places, one in folds_of(setup.dataset, policy)
    )
    return MethodRun(method, run, own, folds)


def lengths_of(setup: Setup, line: MethodRun) -> dict[int, int]:
    """Return a method's entries for each budget: its own budget, or all that are asked for."""
    row = BASELINES.get(line.method)
    if row is not None and row.budget is not None:
        return {row.budget: len(line.policy)}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def score_budgets(
    setup: Setup, lines: Sequence[MethodRun], lengths: Lengths = lengths_of
) -> Iterator[Scored]:
    """Predict each distinct view once; score each line at every budget, the smallest first."""
    read = predicted(setup, [view for line in lines for view in line.views])
    for line in lines:
        own, learned = line.policy.view_temperature, _learned(setup, line, read)
        for budgets, length, means in _averages(
            setup, line, read, lengths, {own, *learned.values()}
        ):
            found, fitted = setup.evaluated(means[own], own), None
            if setup.learned_averages:
                found = _with_both(setup, found, own, means, learned)
                kappa = learned[_ALL_IMAGES]
                fitted = Fitted(kappa, setup.temperature(means[kappa], kappa))
            views = line.policy[:length].views
            for budget in budgets:
                yield Scored(line, budget, views, means[own], found, fitted, read)


Averaged = tuple[list[int], int, Mapping[float, FloatArray]]
"""Budgets with the same views, the entries of these, and averages `[n, c]` by view temperature."""


def _averages(
    setup: Setup, line: MethodRun, read: ReadViews, lengths: Lengths, view_temperatures: set[float]
) -> Iterator[Averaged]:
    if line.folds:
        yield from _joined(setup, line, read, lengths, view_temperatures)
        return
    wanted = lengths(setup, line)
    prefixes = sorted(set(wanted.values()))
    made = prefix_averages(read(line.views), prefixes, view_temperatures)
    for length, means in zip(prefixes, made, strict=True):
        yield [budget for budget, entries in wanted.items() if entries == length], length, means


def _joined(
    setup: Setup, line: MethodRun, read: ReadViews, lengths: Lengths, view_temperatures: set[float]
) -> Iterator[Averaged]:
    """Join the predictions of the folds' policies, each for its own images.

    An average at a view temperature κ is about κ times too flat, so all are brought to the line's
    own view temperature before one temperature calibrates them.
    """
    own, entries, order = line.policy.view_temperature, lengths(setup, line), line.order

    def of_fold(one: Fold, part: MethodRun) -> Iterator[Mapping[float, FloatArray]]:
        kappa = one.policy.view_temperature

        def read_part(views: Sequence[View]) -> NDArray[np.float32]:
            return read(views)[:, one.places]

        asked = {*view_temperatures, kappa}
        for budgets, _, means in _averages(setup, part, read_part, lengths, asked):
            tempered = means[kappa] if kappa == own else temper(means[kappa], own / kappa)
            yield from [{**means, own: tempered}] * len(budgets)

    parts = map(of_fold, line.folds, line.parts)
    for budget, means in zip(sorted(entries), zip(*parts, strict=True), strict=True):
        joined = {k: np.concatenate([one[k] for one in means])[order] for k in view_temperatures}
        yield [budget], entries[budget], joined


def _learned(setup: Setup, line: MethodRun, read: ReadViews) -> dict[str | bytes, float]:
    """Return the view temperatures of both averages: by the part to calibrate on, and for all."""
    if not setup.learned_averages:
        return {}
    labels, groups = setup.dataset.labels, setup.dataset.units
    rounds = partitions(len(labels), setup.protocol, setup.halvings, setup.seed, groups)
    parts = {calibrate.tobytes(): calibrate for one in rounds for calibrate, _ in one}
    asked = [*parts.values(), np.arange(len(labels))]
    found = [line.policy.view_temperature] * len(asked)  # a policy's was learned on other images
    if line.method != POLICY_METHOD:
        log_probs = read(line.views)
        found = learned_view_temperatures(log_probs, labels, asked, groups, setup.weights)
    return {_USUAL: 1.0, **dict(zip([*parts, _ALL_IMAGES], found, strict=True))}


def _with_both(
    setup: Setup,
    found: Evaluation,
    own: float,
    means: Mapping[float, FloatArray],
    learned: Mapping[str | bytes, float],
) -> Evaluation:
    """Add the metrics of the usual and of the learned average; one of them is the method's own."""
    usual = found if own == 1 else setup.evaluated(means[1.0])
    if all(kappa == own for part, kappa in learned.items() if part != _USUAL):
        return found.named(usual_average=usual, learned_average=found)

    def averages(part: Indices) -> tuple[LogProbs, float]:
        kappa = learned[part.tobytes()]
        return means[kappa], kappa

    other = setup.evaluated(means[own], own, averages)
    return found.named(usual_average=usual, learned_average=other)


@dataclass
class Scores:
    """Evaluations, one per run, and costs by method and budget.

    `fitted`, `answers` `[n]` (the likeliest classes) and `log_probs` `[n, c]` (with the most views)
    are those of a method's first run; `disagreement` `[n]` is that of the policy's views.
    """

    evaluations: dict[Key, list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)
    fitted: dict[Key, Fitted] = field(default_factory=dict)
    answers: dict[Key, Labels] = field(default_factory=dict)
    log_probs: dict[str, FloatArray] = field(default_factory=dict)
    disagreement: FloatArray = field(default_factory=lambda: np.empty(0))


def score_lines(setup: Setup, lines: Sequence[MethodRun]) -> Scores:
    """Score every line at every budget, and at every number of views shown in curves."""
    scores = Scores()

    def all_prefixes(setup: Setup, line: MethodRun) -> dict[int, int]:
        if has_own_budget(line.method):
            return lengths_of(setup, line)
        shortest = min(one.policy.views for one in lines if one.method == line.method)
        every = range(1, min(ALL_PREFIXES_TO, setup.budgets[-1], shortest) + 1)
        return lengths_of(replace(setup, budgets=tuple(sorted({*every, *setup.budgets}))), line)

    for one in score_budgets(setup, lines, all_prefixes):
        scores.evaluations.setdefault(one.key, []).append(one.evaluation)
        scores.views[one.key] = max(one.views, scores.views.get(one.key, 0))
        if one.line.run == 0:
            if one.fitted is not None:
                scores.fitted[one.key] = one.fitted
            scores.answers[one.key] = one.log_probs.argmax(axis=1)
            scores.log_probs[one.line.method] = one.log_probs
            if one.line.method == POLICY_METHOD and not len(scores.disagreement):
                scores.disagreement = disagreement(one.line, one.read)
    return scores


def disagreement(line: MethodRun, read: ReadViews) -> FloatArray:
    """Return how much a line's views disagree on each image `[n]`: their mutual information."""

    def of(part: MethodRun, places: Any) -> FloatArray:
        return mutual_information(map(part.policy.tempered, read(part.views)[:, places]))

    if not line.folds:
        return of(line, slice(None))
    own = [of(part, fold.places) for part, fold in zip(line.parts, line.folds, strict=True)]
    return np.asarray(np.concatenate(own)[line.order])


def predicted(setup: Setup, views: Sequence[View]) -> ReadViews:
    """Predict each distinct view once, unless it is known; return a function that reads views."""
    classes, read = predict_distinct(
        setup.predictor,
        setup.dataset.images,
        views,
        known=setup.known,
        store_path=setup.store,
        seed=setup.seed,
        batch=setup.batch,
        indices=setup.places,
        progress=setup.progress,
    )
    highest = int(setup.dataset.labels.max())
    if highest >= classes:
        raise RelookError(
            f"{setup.dataset.name}: expected labels from 0 to {classes - 1}, as the model has "
            f"{classes} classes, got {highest}: check that model and data belong together"
        )
    return read


def best_rival(key: Key, scores: Mapping[Key, float]) -> Key | None:
    """Return the best baseline within `key`'s budget; None if that is `key`'s own method."""
    best = max(affordable(key[1], scores), key=lambda one: scores[one])
    return None if best[0] == key[0] else best


def affordable(budget: int, scored: Iterable[Key]) -> list[Key]:
    """Return each baseline that was scored, with the most views that the budget allows."""
    cheap = sorted((one for one in scored if one[1] <= budget), key=lambda one: one[1])
    return list({one[0]: one for one in cheap if one[0] in BASELINES}.values())
