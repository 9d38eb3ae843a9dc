"""Policies on other models and data than they were found on (the paper's section on transfer)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, Options
from relook.evaluation.compare import available_methods, check_policies, checked_budgets
from relook.evaluation.comparison import Measured
from relook.evaluation.cross_validation import Evaluation, cross_validated, prefix_log_probs
from relook.evaluation.scoring import Line, Scores, Setup, lines_of, predicted
from relook.foundation.progress import Progress
from relook.models import Predictor
from relook.numerics.intervals import mean_and_deviation, paired_bootstrap
from relook.numerics.randomness import check_seed
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.policy.recipes import Recipe, get_recipe
from relook.predictions.passes import distinct_views
from relook.studies.shared import progress_shares, store_path_of
from relook.studies.transfer_result import (
    CROPS,
    Intervals,
    Transfer,
    TransferCell,
    TransferTarget,
)

METHODS = ("plain", CROPS)
"""The baselines that stand beside the policies."""


@dataclass(frozen=True)
class Target:
    """A model, and images that no policy's search has seen; `own` names the model's policy.

    `indices` are the images' places in the data set that they were taken from; `batch` is how
    many images the model takes at once, where that differs from the others'.
    """

    name: str
    predictor: Predictor
    dataset: Dataset
    own: str | None = None
    indices: ArrayLike | None = None
    batch: int | None = None


def transfer(
    targets: Sequence[Target],
    policies: Mapping[str, Policy],
    *,
    recipe: Recipe | str | None = None,
    budgets: Sequence[int] = (5, 10, 20),
    methods: Sequence[str] = METHODS,
    seed: int = 0,
    runs: int = 1,
    store_path: str | Path | None = None,
    batch: int | None = None,
    progress: Progress | None = None,
    halvings: int = 5,
    resamples: int = 2000,
    record: Mapping[str, Any] | None = None,
) -> Transfer:
    """Score every policy on every target at equal numbers of distinct views.

    A target whose `own` names one of the policies gets the change from that policy to each
    other one; every target gets the difference to the baselines `methods`. A budget beyond
    what the shortest policy has is lowered to that. `recipe` is where random crops come from
    (default: the policies' own). What `runs` means is as in `relook.compare`.
    `store_path` is a directory for predictions; an interrupted call goes on.
    """
    check_policies(tuple(policies.values()), runs)
    _check_names(targets, policies)
    prior = _common_recipe(policies, recipe)
    asked = checked_budgets(budgets)
    most = min(policy.views for policy in policies.values())
    shared = tuple(sorted({min(budget, most) for budget in asked}))
    jobs = []
    for target in targets:
        setup = Setup(
            predictor=target.predictor,
            dataset=target.dataset,
            places=_places(target),
            recipe=prior,
            budgets=shared,
            options=Options().for_images(target.dataset.images),
            seed=check_seed(seed),
            runs=runs,
            halvings=halvings,
            resamples=resamples,
            store_path=None if store_path is None else Path(store_path),
            batch=target.batch or batch,
            progress=None,
        )
        jobs.append(_job(target, setup, policies, methods))
    cells: list[TransferCell] = []
    infos: list[TransferTarget] = []
    reports = progress_shares(progress, [job.passes for job in jobs])
    for job, report in zip(jobs, reports, strict=True):
        scores, classes = _scored(replace(job.setup, progress=report), job.lines)
        cells += _cells(job, scores, [*policies, *job.baselines])
        infos.append(_info(job.target, classes))
    return Transfer(
        policies=tuple(policies),
        baselines=tuple(dict.fromkeys(method for job in jobs for method in job.baselines)),
        targets=tuple(infos),
        budgets=shared,
        cells=tuple(cells),
        settings={
            "recipe": prior.name,
            "asked_budgets": list(asked),
            "left_out": {name: why for job in jobs for name, why in job.left_out.items()},
            "seed": seed,
            "runs": runs,
            "halvings": halvings,
            "resamples": resamples,
            "policies": {name: policy_to_json(policy) for name, policy in policies.items()},
            **(record or {}),
        },
    )


@dataclass(frozen=True)
class _Job:
    """What is scored on one target."""

    target: Target
    setup: Setup
    lines: tuple[Line, ...]
    baselines: tuple[str, ...]
    left_out: Mapping[str, str]

    @property
    def passes(self) -> int:
        """How many views go through the model."""
        distinct, _ = distinct_views(view for line in self.lines for view in line.views)
        return len(distinct) * len(self.setup.dataset)


def _job(
    target: Target, setup: Setup, policies: Mapping[str, Policy], methods: Sequence[str]
) -> _Job:
    chosen, missing = available_methods(setup, methods, None)
    baselines = tuple(method for method in chosen if method != POLICY_METHOD)
    lines = [line for method in baselines for line in lines_of(setup, method, ())]
    lines += [line for name, policy in policies.items() for line in _lines(setup, name, policy)]
    left_out = {f"{method} on {target.name}": why for method, why in missing.items()}
    return _Job(target, setup, tuple(lines), baselines, left_out)


def _check_names(targets: Sequence[Target], policies: Mapping[str, Policy]) -> None:
    """Raise unless targets and policies can be told apart, and images are of one kind."""
    names = [target.name for target in targets]
    if not names:
        raise RelookError("expected at least one model to apply the policies to, got none")
    for name in names:
        if names.count(name) > 1:
            raise RelookError(f"expected another name for each target, but {name!r} is there twice")
    for name in policies:
        if name in BASELINES:
            raise RelookError(f"policy {name!r}: that is a baseline's name; choose another")
    for target in targets:
        if target.own is not None and target.own not in policies:
            raise unknown_name("policy", target.own, policies)
    first = targets[0]
    for target in targets[1:]:
        ours, theirs = first.dataset.images.shape[1], target.dataset.images.shape[1]
        if ours != theirs:
            raise RelookError(
                f"expected images with the same number of channels, got {ours} for {first.name!r} "
                f"and {theirs} for {target.name!r}: a policy for one does not fit the other"
            )


def _common_recipe(policies: Mapping[str, Policy], recipe: Recipe | str | None) -> Recipe:
    """Return the recipe that all policies come from, or say which do not."""
    given = None if recipe is None else get_recipe(recipe)
    known = {name: policy.recipe for name, policy in policies.items() if policy.recipe is not None}
    if given is None and not known:
        raise RelookError("the policies do not say which recipe they come from: give a recipe")
    wanted = given.name if given is not None else next(iter(known.values()))
    for name, found in known.items():
        if found != wanted:
            raise RelookError(
                f"policy {name!r}: expected one of the recipe {wanted!r} like the others, got "
                f"one of {found!r}: its views are made for other images"
            )
    return given or get_recipe(wanted)


def _places(target: Target) -> Any:
    if target.indices is None:
        return np.arange(len(target.dataset))
    return np.asarray(target.indices, dtype=np.int64)


def _lines(setup: Setup, name: str, policy: Policy) -> list[Line]:
    repeats = 1 if policy.is_fixed else setup.runs
    return [Line(name, run, policy.for_budget(setup.budgets[-1])) for run in range(repeats)]


def _scored(setup: Setup, lines: Sequence[Line]) -> tuple[Scores, int]:
    """Predict each distinct view once and score the budgets; returns the classes too."""
    views = [view for line in lines for view in line.views]
    read = predicted(
        replace(setup, store_path=store_path_of(setup, views, setup.store_path)), views
    )
    scores, classes = Scores(), 0
    for line in lines:
        lengths = _lengths(setup, line)
        prefixes = sorted(set(lengths.values()))
        found: dict[int, Evaluation] = {}
        for length, mean in zip(
            prefixes, prefix_log_probs(read(line.views), prefixes), strict=True
        ):
            classes = mean.shape[1]
            found[length] = cross_validated(
                mean,
                setup.dataset.labels,
                seed=setup.seed,
                halvings=setup.halvings,
                groups=setup.dataset.groups,
            )
        for budget, length in lengths.items():
            key = (line.method, budget)
            scores.evaluations.setdefault(key, []).append(found[length])
            scores.views[key] = max(line.policy[:length].views, scores.views.get(key, 0))
    return scores, classes


def _lengths(setup: Setup, line: Line) -> dict[int, int]:
    """Return how many entries are scored for each budget."""
    row = BASELINES.get(line.method)
    if row is not None and row.budget is not None:
        return {b: len(line.policy) for b in setup.budgets if row.budget <= b}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def _cells(job: _Job, scores: Scores, sources: Sequence[str]) -> list[TransferCell]:
    setup, target = job.setup, job.target

    def over(source: str, other: str | None, budget: int) -> Intervals | None:
        if other in (None, source) or (other, budget) not in scores.evaluations:
            return None
        return {
            name: paired_bootstrap(
                scores.per_image((source, budget), name) - scores.per_image((other, budget), name),
                seed=setup.seed,
                resamples=setup.resamples,
                groups=setup.dataset.groups,
            )
            for name in ("cll", "accuracy")
        }

    return [
        TransferCell(
            source=source,
            target=target.name,
            budget=budget,
            views=scores.views[source, budget],
            metrics=_means(scores.evaluations[source, budget]),
            change=over(source, target.own, budget),
            over_crops=over(source, CROPS, budget),
            over_plain=over(source, "plain", budget),
        )
        for budget in setup.budgets
        for source in sources
        if (source, budget) in scores.evaluations
    ]


def _means(found: Sequence[Evaluation]) -> dict[str, Measured]:
    return {
        name: Measured(*mean_and_deviation([one.metrics[name] for one in found]))
        for name in found[0].metrics
    }


def _info(target: Target, classes: int) -> TransferTarget:
    return TransferTarget(
        name=target.name,
        data=target.dataset.name,
        images=len(target.dataset),
        classes=classes,
        own=target.own,
        model=target.predictor.fingerprint,
    )
