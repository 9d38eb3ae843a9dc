"""Methods × budgets × runs: predicted once, then cross-validated prefix by prefix."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, Options
from relook.evaluation.cross_validation import Evaluation, cross_validated, prefix_log_probs
from relook.foundation.progress import Progress
from relook.models import Predictor
from relook.numerics.arrays import FloatArray
from relook.policy import DrawKind, Policy
from relook.policy.recipes import Recipe
from relook.predictions.passes import View, distinct_views, fill_store, predict_views

ALL_PREFIXES_TO = 20
"""Up to so many views every prefix is scored, for the curves; beyond, the asked budgets."""

_RUN_STRIDE = 1 << 16  # view indices of one run: fresh draws never meet those of another

BASELINE_DRAWS: DrawKind = "fresh"
"""One crop for all images may be a lucky one; what people do is to draw one for each."""

Key = tuple[str, int]
"""A method and a budget."""


@dataclass(frozen=True)
class Setup:
    """What decides a comparison besides the policy, checked."""

    predictor: Predictor
    dataset: Dataset
    places: NDArray[np.int64]
    recipe: Recipe
    budgets: tuple[int, ...]
    options: Options
    seed: int
    runs: int
    halvings: int
    resamples: int
    store_path: Path | None
    batch: int | None
    progress: Progress | None
    store_url: str | None = None
    """Where predictions are kept instead, in an object store."""


@dataclass(frozen=True)
class MethodRun:
    """One method in one run: its policy for the largest budget."""

    method: str
    run: int
    policy: Policy

    @property
    def views(self) -> list[View]:
        """The views to predict, one an entry."""
        return [View(sub, self.run * _RUN_STRIDE + i) for i, sub in enumerate(self.policy)]


@dataclass
class Scores:
    """What is found on the way: evaluations and costs by method and budget, one per run."""

    evaluations: dict[Key, list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)
    log_probs: dict[str, FloatArray] = field(default_factory=dict)

    def per_image(self, key: Key, name: str) -> FloatArray:
        """Return a metric of each image `[n]`, averaged over the runs."""
        mean: FloatArray = np.mean([one.per_image[name] for one in self.evaluations[key]], axis=0)
        return mean


def lines_of(setup: Setup, method: str, policies: Sequence[Policy]) -> list[MethodRun]:
    """Return a method's runs: other seeds for what is random, other draws for a fresh policy."""
    most = setup.budgets[-1]
    if method == POLICY_METHOD:
        # Fixed draws make the same views in every run; one is enough.
        repeats = 1 if policies[0].is_fixed else setup.runs
        several = policies if len(policies) > 1 else [policies[0]] * repeats
        return [MethodRun(method, run, one.for_budget(most)) for run, one in enumerate(several)]
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


def score_lines(setup: Setup, lines: Sequence[MethodRun]) -> Scores:
    """Predict all views of all lines, each distinct one once, and score the prefixes."""
    read = predicted(setup, [view for line in lines for view in line.views])
    labels = setup.dataset.labels
    scores = Scores()
    for line in lines:
        lengths = _prefix_lengths(setup, line, lines)
        prefixes = sorted(set(lengths.values()))
        found: dict[int, Evaluation] = {}
        mean = np.empty(0)
        means = prefix_log_probs(read(line.views), prefixes)
        for length, mean in zip(prefixes, means, strict=True):
            found[length] = cross_validated(
                mean, labels, seed=setup.seed, halvings=setup.halvings, groups=setup.dataset.groups
            )
        scores.log_probs.setdefault(line.method, mean)
        for budget, length in lengths.items():
            key = (line.method, budget)
            scores.evaluations.setdefault(key, []).append(found[length])
            cost = line.policy[:length].views
            scores.views[key] = max(cost, scores.views.get(key, 0))
    return scores


def predicted(
    setup: Setup, views: Sequence[View]
) -> Callable[[Sequence[View]], NDArray[np.float32]]:
    """Predict each distinct view once; return how to get at the predictions of some."""
    distinct, _ = distinct_views(views)
    arguments: dict[str, Any] = {
        "seed": setup.seed,
        "batch": setup.batch,
        "indices": setup.places,
        "progress": setup.progress,
    }
    images = setup.dataset.images
    read: Callable[[list[int]], NDArray[np.float32]]
    place = setup.store_path if setup.store_url is None else setup.store_url
    if place is None:
        log_probs = predict_views(setup.predictor, images, distinct, **arguments)
        classes, read = log_probs.shape[2], log_probs.__getitem__
    else:
        store = fill_store(setup.predictor, images, distinct, place, **arguments)
        classes, read = store.plan.classes, store.read
    _check_classes(setup.dataset, classes)

    def read_views(wanted: Sequence[View]) -> NDArray[np.float32]:
        # Repeats and views of other methods are found by joining the lists.
        _, order = distinct_views([*distinct, *wanted])
        return np.asarray(read(order[len(distinct) :]))

    return read_views


def _check_classes(dataset: Dataset, classes: int) -> None:
    highest = int(dataset.labels.max())
    if highest >= classes:
        raise RelookError(
            f"{dataset.name}: expected labels from 0 to {classes - 1}, as the model has {classes} "
            f"classes, got {highest}: check that model and data belong together"
        )


def _prefix_lengths(setup: Setup, line: MethodRun, lines: Sequence[MethodRun]) -> dict[int, int]:
    """Return how many entries are scored for each budget."""
    fixed = None if line.method == POLICY_METHOD else BASELINES[line.method].budget
    if fixed is not None:
        return {fixed: len(line.policy)}
    shortest = min(one.policy.views for one in lines if one.method == line.method)
    every = range(1, min(ALL_PREFIXES_TO, setup.budgets[-1], shortest) + 1)
    return {b: len(line.policy.for_budget(b)) for b in sorted({*every, *setup.budgets})}


def best_rival(key: Key, scores: Mapping[Key, float]) -> Key | None:
    """Return the best baseline, each with the most views that `key`'s budget allows.

    `scores` are by method and budget, higher is better. None where it is the method itself.
    """
    affordable: dict[str, Key] = {}
    for one in sorted(scores, key=lambda one: one[1]):
        if one[0] in BASELINES and one[1] <= key[1]:
            affordable[one[0]] = one
    best = max(affordable.values(), key=lambda one: scores[one])
    return None if best[0] == key[0] else best
