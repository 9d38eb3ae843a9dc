"""Ensembles: three ways to search for one, beside baselines (the paper's section on ensembles).

"single": the policy of one member serves all; "ensemble": a policy found on the members'
mean; "per-member": each member has a policy of its own, which the paper leaves open.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, Options
from relook.evaluation.compare import available_methods, checked_budgets, with_magnitude
from relook.evaluation.cross_validation import Evaluation, cross_validated, prefix_log_probs
from relook.evaluation.scoring import Line, Setup, lines_of, predicted
from relook.foundation.progress import StageProgress, stage_of
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.models import EnsemblePredictor, Predictor
from relook.models.accelerate import accelerate_run
from relook.numerics.arrays import FloatArray
from relook.policy import Policy
from relook.policy_search.job import plan_search
from relook.policy_search.run_record import FORMER_VALUES
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, distinct_views
from relook.selection.record import Log
from relook.studies.ensembles_result import ENSEMBLE, PER_MEMBER, SINGLE, Ensembles
from relook.studies.ensembles_rows import Found, rows_of
from relook.studies.ensembles_search import FoundPolicies, check_members, search_policies
from relook.studies.shared import progress_shares, store_path_of

METHODS = ("plain", "cf", "mtrain", "mgrid")
"""The baselines of the paper's study: CC, CF, Tr and M*."""


def ensembles(
    members: Mapping[str, Predictor],
    dataset: Dataset,
    settings: SearchSettings,
    *,
    test: Dataset | None = None,
    single: str | None = None,
    budgets: Sequence[int] = (1, 5, 10, 20),
    methods: Sequence[str] = METHODS,
    options: Options | None = None,
    runs: int = 1,
    run: str | Path | None = None,
    pools: Mapping[str, Path] = MappingProxyType({}),
    progress: StageProgress | None = None,
    log: Log | None = None,
    halvings: int = 5,
    resamples: int = 2000,
    record: Mapping[str, Any] | None = None,
) -> Ensembles:
    """Search in three ways and score all on held-out images, beside baselines.

    `settings` are those of one search; its split of `dataset` (or `test`) says which images
    are held out. `single` names the member whose policy, and whose magnitude M*, serve all
    (default: the first). A budget counts distinct views a member; every member sees the same
    number, and the same views but in the way "per-member". What `methods`, `options` and
    `runs` mean is as in `relook.compare`. With `run`, everything is kept in that directory,
    and the same call goes on where an interrupted one stopped. `pools` names, for members that
    were searched for with the same settings, the directories of those runs: what they predicted
    is not predicted again.
    """
    check_members(members, settings)
    one = next(iter(members)) if single is None else single
    if one not in members:
        raise unknown_name("member", one, members)
    if runs < 1:
        raise RelookError(f"expected at least 1 run, got {runs}")
    together = EnsemblePredictor(list(members.values()))
    where = None if run is None else Path(run)
    job = plan_search(together, dataset, settings, test=test, directory=where)
    searched, held_out = job.split
    with nullcontext() if run is None else RunDirectory(run) as directory:
        if directory is not None:
            directory.check_settings(job.record(), FORMER_VALUES)
        fast = _accelerated(members, dataset, settings, where, pools)
        found = search_policies(fast, job, pools=pools, progress=progress, log=log)
        if where is not None:
            _save_policies(found, where / "policies")
        proof = job.proof
        setup = Setup(
            predictor=fast[one],
            dataset=proof,
            places=held_out,
            recipe=settings.recipe,
            budgets=checked_budgets(budgets),
            options=(options or Options()).for_images(proof.images),
            seed=settings.seed,
            runs=runs,
            halvings=halvings,
            resamples=resamples,
            store_path=_grid_path(where, one, options or Options()),
            batch=settings.batch,
            progress=stage_of(progress, "compare"),
        )
        validation = dataset.subset(searched)
        chosen, left_out = available_methods(setup, methods, validation)
        given = "mgrid" not in chosen or setup.options.grid_magnitude is not None
        setup, grid = with_magnitude(setup, None if given else validation)
        setup = replace(setup, progress=stage_of(progress, "evaluate"))
        plans = _plans(setup, found, one, chosen)
        stores = None if where is None else where / "held-out"
        scored = _score(setup, list(fast.values()), plans, stores)
    return Ensembles(
        rows=rows_of(setup, scored, len(members)),
        budgets=setup.budgets,
        members=tuple(members),
        single=one,
        policies=found.members,
        policy=found.ensemble,
        images=len(proof),
        searched=len(searched),
        settings={
            "recipe": settings.recipe.name,
            "search": json.loads(json.dumps(job.record())),
            "methods": [method for method in chosen if method != POLICY_METHOD],
            "left_out": dict(left_out),
            "seed": setup.seed,
            "runs": runs,
            "halvings": halvings,
            "resamples": resamples,
            "randaugment": asdict(setup.options),
            "grid_search": None if grid is None else [list(score) for score in grid.scores],
            "data": {"name": dataset.name, "fingerprint": dataset.fingerprint},
            **(record or {}),
        },
    )


@dataclass(frozen=True)
class _Plan:
    """One method in one run: for each member the policy that it sees images through."""

    method: str
    run: int
    policies: tuple[Policy, ...]

    def views(self, member: int) -> list[View]:
        """Return the views of a member, one an entry."""
        return Line(self.method, self.run, self.policies[member]).views

    def lengths(self, budgets: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return how many entries each member uses at each budget: equal views for all."""
        row = BASELINES.get(self.method)
        if row is not None and row.budget is not None:
            return {row.budget: tuple(len(policy) for policy in self.policies)}
        least = min(policy.views for policy in self.policies)
        return {
            budget: tuple(len(one.for_budget(min(budget, least))) for one in self.policies)
            for budget in budgets
        }


def _plans(setup: Setup, found: FoundPolicies, single: str, methods: Sequence[str]) -> list[_Plan]:
    """Return the baselines and the three ways, each with its runs."""
    count = len(found.members)
    plans = [
        _Plan(method, line.run, (line.policy,) * count)
        for method in methods
        if method != POLICY_METHOD
        for line in lines_of(setup, method, ())
    ]
    ways = {
        SINGLE: (found.members[single],) * count,
        ENSEMBLE: (found.ensemble,) * count,
        PER_MEMBER: tuple(found.members.values()),
    }
    for way, policies in ways.items():
        repeats = 1 if all(policy.is_fixed for policy in policies) else setup.runs
        cut = tuple(policy.for_budget(setup.budgets[-1]) for policy in policies)
        plans += [_Plan(way, run, cut) for run in range(repeats)]
    return plans


def _score(
    setup: Setup, members: Sequence[Predictor], plans: Sequence[_Plan], directory: Path | None
) -> Found:
    """Predict each member's distinct views once, and score the ensemble and each member."""
    views = [[v for plan in plans for v in plan.views(place)] for place in range(len(members))]
    passes = [len(distinct_views(own)[0]) * len(setup.dataset) for own in views]
    read = []
    for member, own, report in zip(
        members, views, progress_shares(setup.progress, passes), strict=True
    ):
        here = replace(setup, predictor=member, progress=report)
        read.append(predicted(replace(here, store_path=store_path_of(here, own, directory)), own))
    found = Found()
    for plan in plans:
        lengths = plan.lengths(setup.budgets)
        totals: dict[int, FloatArray] = {}
        for place, read_views in enumerate(read):
            entries = {budget: each[place] for budget, each in lengths.items()}
            means = _means(read_views(plan.views(place)), entries)
            _add_alone(setup, found, plan, place, means, entries)
            for budget, mean in means.items():
                totals[budget] = totals.get(budget, 0.0) + np.exp(mean) / len(members)
        for budget, total in totals.items():
            key = (plan.method, budget)
            with np.errstate(divide="ignore"):  # predictions from elsewhere may hold 0
                found.together.setdefault(key, []).append(_evaluated(setup, np.log(total)))
            spent = plan.policies[0][: lengths[budget][0]].views
            found.views[key] = max(spent, found.views.get(key, 0))
    return found


def _means(log_probs: NDArray[np.float32], lengths: Mapping[int, int]) -> dict[int, FloatArray]:
    """Return the log of the mean probability `[n, c]` at each budget."""
    prefixes = sorted(set(lengths.values()))
    found = dict(zip(prefixes, prefix_log_probs(log_probs, prefixes), strict=True))
    return {budget: found[length] for budget, length in lengths.items()}


def _add_alone(
    setup: Setup,
    found: Found,
    plan: _Plan,
    member: int,
    means: Mapping[int, FloatArray],
    entries: Mapping[int, int],
) -> None:
    """Score a member by itself under baselines and under its own policy."""
    if plan.method in (SINGLE, ENSEMBLE):
        return
    method = POLICY_METHOD if plan.method == PER_MEMBER else plan.method
    for budget, mean in means.items():
        key = (method, budget)
        each = found.alone.setdefault(key, [])
        if len(each) == member:
            each.append([])
        each[member].append(_evaluated(setup, mean))
        spent = plan.policies[member][: entries[budget]].views
        found.views[key] = max(spent, found.views.get(key, 0))


def _evaluated(setup: Setup, log_probs: FloatArray) -> Evaluation:
    return cross_validated(
        log_probs,
        setup.dataset.labels,
        seed=setup.seed,
        halvings=setup.halvings,
        groups=setup.dataset.groups,
    )


def _accelerated(
    members: Mapping[str, Predictor],
    dataset: Dataset,
    settings: SearchSettings,
    directory: Path | None,
    pools: Mapping[str, Path],
) -> dict[str, Predictor]:
    """Return the members on the engine that the settings, or an earlier call, chose."""
    records: dict[str, Path] = {}
    if directory is not None:
        records = {name: directory / f"engine-{i}.json" for i, name in enumerate(members, start=1)}
    records |= {name: RunDirectory(run).engine for name, run in pools.items()}
    return {
        name: accelerate_run(
            member,
            dataset.images,
            mode=settings.accelerate,
            precision=settings.precision,
            compiled=settings.compiled,
            record=records.get(name),
        ).predictor
        for name, member in members.items()
    }


def _grid_path(directory: Path | None, single: str, options: Options) -> Path | None:
    """Return the name beside which the grid search keeps its predictions."""
    if directory is None:
        return None
    return directory / f"magnitude-{fingerprint(single, asdict(options))[:8]}.zarr"


def _save_policies(found: FoundPolicies, directory: Path) -> None:
    """Write ensemble.json, and member-1.json … in the members' order."""
    found.ensemble.save(directory / "ensemble.json")
    for number, policy in enumerate(found.members.values(), start=1):
        policy.save(directory / f"member-{number}.json")
