"""Methods × budgets × runs: predicted once, then cross-validated prefix by prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, Options
from relook.evaluation.comparison import Fitted
from relook.evaluation.cross_validation import Averages, Evaluation, cross_validated, partitions
from relook.evaluation.unseen import Fold, folds_of
from relook.foundation.progress import Progress
from relook.models import Predictor
from relook.numerics.arrays import FloatArray, Indices, LogProbs
from relook.numerics.calibration import fit_temperature, temper
from relook.numerics.intervals import (
    Interval,
    likely_variance,
    paired_interval,
    share_interval,
)
from relook.numerics.metrics import mutual_information
from relook.numerics.view_temperature import learned_view_temperatures, prefix_averages
from relook.policy import DrawKind, Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import KnownViews, ReadViews, View, predict_distinct
from relook.selection.objectives import class_weights

_RUN_STRIDE = 1 << 16  # view indices of one run: fresh draws never meet those of another

BASELINE_DRAWS: DrawKind = "fresh"
"""One crop for all images may be a lucky one; what people do is to draw one for each."""

DEFAULTS = Options()
_USUAL, _EVERYTHING = "usual", "everything"  # besides the halves, what averages are made for

Key = tuple[str, int]
"""A method and a budget."""


@dataclass(frozen=True)
class Setup:
    """What decides how methods are scored, checked; `places` are the images' own indices.

    `store` is where predictions are kept: a path, or a URL of an object store. With
    `both_averages` every method is scored by the usual and by a learned average of its views.
    Views that are `known` are not predicted again.
    """

    predictor: Predictor
    dataset: Dataset
    places: NDArray[np.int64]
    recipe: Recipe
    budgets: tuple[int, ...]
    options: Options = DEFAULTS
    seed: int = 0
    runs: int = 1
    halvings: int = 5
    protocol: str = "standard"
    balanced: bool = False
    both_averages: bool = False
    store: str | Path | None = None
    batch: int | None = None
    progress: Progress | None = None
    known: KnownViews | None = None

    def evaluated(
        self,
        log_probs: FloatArray,
        view_temperature: float = 1.0,
        averages: Averages | None = None,
    ) -> Evaluation:
        """Return the cross-validated metrics of log-probabilities `[n, c]`."""
        return cross_validated(
            log_probs,
            self.dataset.labels,
            seed=self.seed,
            halvings=self.halvings,
            groups=self.dataset.units,
            weights=self.weights,
            protocol=self.protocol,
            view_temperature=view_temperature,
            averages=averages,
        )

    @property
    def weights(self) -> FloatArray | None:
        """What each image counts `[n]`: all the same, or each class the same."""
        return class_weights(self.dataset.labels) if self.balanced else None

    def temperature(self, log_probs: FloatArray, view_temperature: float) -> float:
        """Return the temperature that all images give an average `[n, c]`."""
        return fit_temperature(
            log_probs,
            self.dataset.labels,
            self.weights,
            groups=self.dataset.units,
            view_temperature=view_temperature,
        )

    def paired(self, one: FloatArray, other: FloatArray) -> Interval:
        """Return the mean difference of values of the same images `[n]`, with its interval."""
        return paired_interval(one - other, groups=self.dataset.units, weights=self.weights)

    def differences(
        self, one: Sequence[Evaluation], other: Sequence[Evaluation], average: str = ""
    ) -> dict[str, Interval]:
        """Return the differences in cLL and accuracy between two methods, each with its runs.

        `average` is the ending of the metrics that are compared.
        """
        return differences(one, other, self.dataset.units, self.weights, average)

    def record(self) -> dict[str, Any]:
        """Return what a file of results says of it."""
        return {
            "recipe": self.recipe.name,
            "budgets": list(self.budgets),
            "seed": self.seed,
            "runs": self.runs,
            "halvings": self.halvings,
            "protocol": self.protocol,
            "balanced": self.balanced,
            "randaugment": asdict(self.options),
            "model": {"fingerprint": self.predictor.fingerprint},
            "data": {
                "name": self.dataset.name,
                "fingerprint": self.dataset.fingerprint,
                "images": len(self.dataset),
            },
        }


def check_policies(policies: Sequence[Policy], runs: int) -> None:
    """Raise unless there is something to compare."""
    if not policies or not all(isinstance(one, Policy) and len(one) for one in policies):
        raise RelookError("expected a policy with at least one sub-policy to compare, got none")
    if runs < 1:
        raise RelookError(f"expected at least 1 run, got {runs}")


def checked_budgets(budgets: Sequence[int]) -> tuple[int, ...]:
    """Return the budgets rising and each once, or raise."""
    whole = [isinstance(b, int | np.integer) and not isinstance(b, bool) for b in budgets]
    if not budgets or not all(whole) or min(budgets) < 1:
        raise RelookError(f"expected budgets of at least 1 view, got {list(budgets)}")
    return tuple(sorted({int(budget) for budget in budgets}))


@dataclass(frozen=True)
class MethodRun:
    """One method in one run: its policy for the largest budget.

    `folds` say which images other policies stand for it on; empty: none.
    """

    method: str
    run: int
    policy: Policy
    folds: tuple[Fold, ...] = ()

    @property
    def parts(self) -> tuple[MethodRun, ...]:
        """The line with each policy that stands for it."""
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

    `fitted` is what the method would be deployed with, where both averages are scored. `read` gets
    at the views' own predictions.
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
    """Return a method's runs: other seeds for what is random, other draws for a fresh policy."""
    most = setup.budgets[-1]
    if method == POLICY_METHOD:
        # Fixed draws make the same views in every run; one is enough.
        repeats = 1 if policies[0].is_fixed else setup.runs
        several = policies if len(policies) > 1 else [policies[0]] * repeats
        return [policy_run(setup, method, run, one) for run, one in enumerate(several)]
    row = BASELINES[method]
    return [
        MethodRun(
            method,
            run,
            row.policy(
                setup.recipe, row.budget or most, setup.seed + run, BASELINE_DRAWS, setup.options
            ),
        )
        for run in range(setup.runs if row.random else 1)
    ]


def policy_run(setup: Setup, method: str, run: int, policy: Policy) -> MethodRun:
    """Return a run of a policy, and of its halves on the images that it was found on."""
    own = policy.for_budget(setup.budgets[-1])
    folds = tuple(
        Fold(places, one.for_budget(own.views)) for places, one in folds_of(setup.dataset, policy)
    )
    return MethodRun(method, run, own, folds)


def lengths_of(setup: Setup, line: MethodRun) -> dict[int, int]:
    """Return a method's budgets: its own, if it has one, or all that are asked for."""
    row = BASELINES.get(line.method)
    if row is not None and row.budget is not None:
        return {row.budget: len(line.policy)}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def score_budgets(
    setup: Setup, lines: Sequence[MethodRun], lengths: Lengths = lengths_of
) -> Iterator[Scored]:
    """Predict each distinct view of all lines once, and score every line at every budget.

    A line's budgets come one after another, the smallest first.
    """
    read = predicted(setup, [view for line in lines for view in line.views])
    for line in lines:
        own, learned = line.policy.view_temperature, _learned(setup, line, read)
        for budgets, length, means in _averages(
            setup, line, read, lengths, {own, *learned.values()}
        ):
            found, fitted = setup.evaluated(means[own], own), None
            if setup.both_averages:
                found = _with_both(setup, found, own, means, learned)
                kappa = learned[_EVERYTHING]
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
    """Join what the folds' policies predict, each of its own images.

    An average at a view temperature κ is about κ times too flat, so those of other view
    temperatures than the line's are brought to its own before one temperature calibrates them all.
    """
    own, entries = line.policy.view_temperature, lengths(setup, line)

    def of_fold(one: Fold, part: MethodRun) -> Iterator[Mapping[float, FloatArray]]:
        kappa = one.policy.view_temperature

        def read_part(views: Sequence[View]) -> NDArray[np.float32]:
            return read(views)[:, one.places]

        asked = {*view_temperatures, kappa}
        for budgets, _, means in _averages(setup, part, read_part, lengths, asked):
            tempered = means[kappa] if kappa == own else temper(means[kappa], own / kappa)
            yield from [{**means, own: tempered}] * len(budgets)

    places = np.argsort(np.concatenate([one.places for one in line.folds]))
    parts = [of_fold(*pair) for pair in zip(line.folds, line.parts, strict=True)]
    for budget, means in zip(sorted(entries), zip(*parts, strict=True), strict=True):
        joined = {
            kappa: np.concatenate([one[kappa] for one in means])[places]
            for kappa in view_temperatures
        }
        yield [budget], entries[budget], joined


def _learned(setup: Setup, line: MethodRun, read: ReadViews) -> dict[str | bytes, float]:
    """Return the view temperatures of both averages: by the half to calibrate on, and for all.

    A policy has brought its own, which was learned on other images.
    """
    if not setup.both_averages:
        return {}
    labels, groups = setup.dataset.labels, setup.dataset.units
    rounds = partitions(len(labels), setup.protocol, setup.halvings, setup.seed, groups)
    parts = {calibrate.tobytes(): calibrate for one in rounds for calibrate, _ in one}
    asked = [*parts.values(), np.arange(len(labels))]
    own = line.policy.view_temperature
    found = [own] * len(asked)
    if line.method != POLICY_METHOD:
        log_probs = read(line.views)
        found = learned_view_temperatures(log_probs, labels, asked, groups, setup.weights)
    return {_USUAL: 1.0, **dict(zip([*parts, _EVERYTHING], found, strict=True))}


def _with_both(
    setup: Setup,
    found: Evaluation,
    own: float,
    means: Mapping[float, FloatArray],
    learned: Mapping[str | bytes, float],
) -> Evaluation:
    """Add how good the usual and the learned average are; one of them is the method's own."""
    usual = found if own == 1 else setup.evaluated(means[1.0])
    if all(kappa == own for part, kappa in learned.items() if part != _USUAL):
        return found.named(usual_average=usual, learned_average=found)

    def averages(part: Indices) -> tuple[LogProbs, float]:
        kappa = learned[part.tobytes()]
        return means[kappa], kappa

    other = setup.evaluated(means[own], own, averages)
    return found.named(usual_average=usual, learned_average=other)


def disagreement(line: MethodRun, read: ReadViews) -> FloatArray:
    """Return how much a line's views disagree on each image `[n]`: their mutual information."""

    def of(part: MethodRun, places: Any) -> FloatArray:
        return mutual_information(map(part.policy.tempered, read(part.views)[:, places]))

    if not line.folds:
        return of(line, slice(None))
    own = [of(*one) for one in zip(line.parts, (f.places for f in line.folds), strict=True)]
    order = np.argsort(np.concatenate([one.places for one in line.folds]))
    return np.asarray(np.concatenate(own)[order])


def differences(
    one: Sequence[Evaluation],
    other: Sequence[Evaluation],
    groups: ArrayLike | None,
    weights: FloatArray | None = None,
    average: str = "",
) -> dict[str, Interval]:
    """Return the differences in cLL and accuracy, one − other, as `Setup.differences` does."""
    cll, accuracy = (
        per_image(one, f"{metric}{average}") - per_image(other, f"{metric}{average}")
        for metric in ("cll", "accuracy")
    )
    likely = likely_between(one, other, f"cll{average}")
    return {
        "cll": paired_interval(cll, groups=groups, weights=weights, likely=likely),
        "accuracy": share_interval(accuracy, groups=groups, weights=weights),
    }


def likely_between(
    one: Sequence[Evaluation], other: Sequence[Evaluation], metric: str = "cll"
) -> float:
    """Return the variance that the predictions expect of two methods' difference in cLL."""
    samples = (np.mean([run.samples[metric] for run in runs], axis=0) for runs in (one, other))
    return likely_variance(*samples)


def per_image(runs: Sequence[Evaluation], metric: str) -> FloatArray:
    """Return a metric of each image `[n]`, averaged over the runs."""
    mean: FloatArray = np.mean([one.per_image[metric] for one in runs], axis=0)
    return mean


def predicted(setup: Setup, views: Sequence[View]) -> ReadViews:
    """Predict each distinct view once, but those that are known; return how to get at them."""
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
    _check_classes(setup.dataset, classes)
    return read


def _check_classes(dataset: Dataset, classes: int) -> None:
    highest = int(dataset.labels.max())
    if highest >= classes:
        raise RelookError(
            f"{dataset.name}: expected labels from 0 to {classes - 1}, as the model has {classes} "
            f"classes, got {highest}: check that model and data belong together"
        )


def best_rival(key: Key, scores: Mapping[Key, float]) -> Key | None:
    """Return the best baseline, each with the most views that `key`'s budget allows.

    `scores` are by method and budget, higher is better. None where it is the method itself.
    """
    best = max(affordable(key[1], scores), key=lambda one: scores[one])
    return None if best[0] == key[0] else best


def affordable(budget: int, scored: Iterable[Key]) -> list[Key]:
    """Return every baseline with the most views, of those scored, that the budget allows."""
    cheap = sorted((one for one in scored if one[1] <= budget), key=lambda one: one[1])
    return list({one[0]: one for one in cheap if one[0] in BASELINES}.values())
