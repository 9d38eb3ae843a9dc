"""An ensemble's policies and their scores, in three ways; no view is predicted twice.

Each member's pool is predicted once, and serves every search; members are scored with equal views.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from relook.errors import RelookError, RunError
from relook.evaluation.baselines import BASELINES, POLICY_METHOD, label_of
from relook.evaluation.cross_validation import Evaluation, per_image
from relook.evaluation.results import Result
from relook.evaluation.scoring import Key, MethodRun, best_rival, lines_of, predicted
from relook.evaluation.setup import Setup
from relook.foundation.memory import default_limit
from relook.foundation.progress import StageProgress
from relook.models import EnsemblePredictor, Predictor
from relook.numerics.arrays import FloatArray, LogProbs
from relook.numerics.calibration import LOG_FLOOR, prefix_log_probs
from relook.policy import Policy
from relook.policy_search.job import SearchJob
from relook.policy_search.pool_predictions import (
    PoolPredictions,
    policy_of,
    predict_pool,
    select_from_pool,
)
from relook.policy_search.settings import SearchSettings
from relook.predictions.memmap import mapped_bytes
from relook.predictions.passes import ReadViews, View, distinct_views
from relook.predictions.store import Predictions
from relook.selection.record import Log
from relook.studies.study import check_holds_out, measured_rows, progress_shares, store_path_of

SINGLE, ENSEMBLE, PER_MEMBER = "single", "ensemble", "per-member"
WAYS: Mapping[str, str] = {
    SINGLE: "one member's policy (GPS single)",
    ENSEMBLE: "the ensemble's policy (GPS ensemble)",
    PER_MEMBER: "a policy for each member (GPS each)",
}
"""The ways to apply the search to an ensemble, with what tables call them."""


MEAN = "mean.npy"
_BLOCK = 16  # candidates averaged at a time


@dataclass(frozen=True)
class FoundPolicies:
    """A policy for each member, by name, and the one found on the ensemble's mean."""

    members: Mapping[str, Policy]
    ensemble: Policy


def search_policies(
    members: Mapping[str, Predictor],
    job: SearchJob,
    *,
    pools: Mapping[str, Path] = MappingProxyType({}),
    progress: StageProgress | None = None,
    log: Log | None = None,
) -> FoundPolicies:
    """Search for each member and, by the job, for the ensemble.

    The ensemble's predictions of the pool are the mean probabilities of its members, so no
    view is predicted twice. In the job's directory all is kept, and the same call goes on;
    members in `pools` have their predictions in that run's directory.
    """
    jobs = [
        replace(
            job,
            predictor=member,
            directory=job.directory and job.directory / f"member-{number}",
            store=str(pools[name]) if name in pools else None,
        )
        for number, (name, member) in enumerate(members.items(), start=1)
    ]
    predicted = [
        predict_pool(own, _part(progress, number, len(jobs))) for number, own in enumerate(jobs)
    ]
    policies = [
        _policy(one, own, _part(progress, number, len(jobs) + 1), None if number else log)
        for number, (one, own) in enumerate(zip(jobs, predicted, strict=True))
    ]
    whole = replace(
        job,
        predictor=EnsemblePredictor(list(members.values())),
        directory=job.directory and job.directory / "ensemble",
    )
    mean = mean_predictions(predicted, whole.directory, job.settings.memory)
    ensemble = _policy(whole, mean, _part(progress, len(jobs), len(jobs) + 1), None)
    if job.directory is not None:
        (job.directory / "ensemble" / MEAN).unlink(missing_ok=True)  # it can be made again
        ensemble.save(job.directory / "policies" / "ensemble.json")
        for number, policy in enumerate(policies, start=1):
            policy.save(job.directory / "policies" / f"member-{number}.json")
    return FoundPolicies(dict(zip(members, policies, strict=True)), ensemble)


def mean_predictions(
    predicted: Sequence[PoolPredictions], directory: Path | None, memory: int | None = None
) -> PoolPredictions:
    """Return the members' mean probabilities as float32 log-probabilities `[k, n, c]`.

    In a `directory` they are a file, made anew at each call, so that they need not fit into
    memory; members are read one after another.
    """
    first = predicted[0]
    shape, dtype = first.predictions.shape, np.dtype(np.float32)
    mapped = 2 * mapped_bytes(shape, dtype) > (default_limit() if memory is None else memory)
    stores = [one.predictions for one in predicted]
    readers = [one.map if mapped and one.map is not None else one.load for one in stores]
    if directory is None:
        mean = np.empty(shape, dtype)
        _average(readers, mean)
        return PoolPredictions(first.candidates, Predictions(shape, dtype, lambda: mean))
    path = directory / MEAN
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = open_memmap(path, mode="w+", dtype=dtype, shape=shape)
        _average(readers, file)
        file.flush()
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    load = partial(np.load, path, allow_pickle=False)
    return PoolPredictions(
        first.candidates, Predictions(shape, dtype, load, partial(load, mmap_mode="r"))
    )


def _average(readers: Sequence[Callable[[], LogProbs]], out: NDArray[Any]) -> None:
    """Write the log of the mean probability over members into `out`, member after member."""
    for number, read in enumerate(readers):
        log_probs = read()
        for begin in range(0, len(out), _BLOCK):
            part = slice(begin, begin + _BLOCK)
            own = log_probs[part].astype(np.float64)
            if number:
                # log of (number · mean so far + this one) over number + 1, in log space.
                before = out[part].astype(np.float64) + np.log(number)
                own = np.logaddexp(before, own) - np.log(number + 1)
            out[part] = np.maximum(own, LOG_FLOOR)


def _policy(
    job: SearchJob, predicted: PoolPredictions, progress: StageProgress | None, log: Log | None
) -> Policy:
    return policy_of(job, predicted, select_from_pool(job, predicted, progress, log))


def check_members(members: Mapping[str, Predictor], settings: SearchSettings) -> None:
    """Raise unless the members make an ensemble, and its search can share their predictions."""
    if len(members) < 2:
        raise RelookError(f"expected at least two models for an ensemble, got {len(members)}")
    EnsemblePredictor(list(members.values()))  # says in one line who differs
    check_holds_out(settings)
    if settings.race:
        raise RelookError("a race drops other candidates for each member: search without --race")


def _part(progress: StageProgress | None, number: int, parts: int) -> StageProgress | None:
    """Report one search's passes or steps as part of all."""
    if progress is None:
        return None

    def report(stage: str, done: int, total: int, score: float | None = None, /) -> None:
        progress(stage, number * total + done, parts * total, score)

    return report


@dataclass
class Found:
    """What is found on the way, by method and budget.

    `runs` has the evaluations, one per run, of each member (a number) and of all together (None);
    `views` is what a member sees of each image.
    """

    runs: dict[tuple[Key, int | None], list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key, member: int | None, found: Evaluation, views: int) -> None:
        """Take in a run."""
        self.runs.setdefault((key, member), []).append(found)
        self.views[key] = max(views, self.views.get(key, 0))

    def together(self) -> dict[Key, list[Evaluation]]:
        """Return the runs of the whole ensemble."""
        return {key: own for (key, member), own in self.runs.items() if member is None}

    def members(self) -> dict[Key, list[Evaluation]]:
        """Return for each member the mean of its runs."""
        means: dict[Key, list[Evaluation]] = {}
        for (key, member), own in self.runs.items():
            if member is not None:
                means.setdefault(key, []).append(_mean(own))
        return means


@dataclass(frozen=True)
class EnsembleRun:
    """One method in one run: for each member the policy that it sees images through."""

    method: str
    run: int
    policies: tuple[Policy, ...]

    def views(self, member: int) -> list[View]:
        """Return the views of a member, one per entry."""
        return MethodRun(self.method, self.run, self.policies[member]).views

    def predictions(self, read: Sequence[ReadViews]) -> tuple[int, Iterator[LogProbs]]:
        """Return how many predictions `[view, n, c]` are averaged, and those: one per member.

        A policy for all members runs on the ensemble as one model: its view temperature is that
        of the members' mean.
        """
        each = (own(self.views(place)) for place, own in enumerate(read))
        if self.method == PER_MEMBER or self.policies[0].view_temperature == 1:
            return len(read), each
        total = sum(np.exp(log_probs, dtype=np.float64) for log_probs in each)
        with np.errstate(divide="ignore"):  # predictions from elsewhere may hold 0
            return 1, iter([np.log(total / len(read))])

    def lengths(self, budgets: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return how many entries each member uses at each budget: equal views for all."""
        row = BASELINES.get(self.method)
        if row is not None and row.budget is not None:
            return {row.budget: tuple(map(len, self.policies))}
        least = min(policy.views for policy in self.policies)
        return {
            budget: tuple(len(one.for_budget(min(budget, least))) for one in self.policies)
            for budget in budgets
        }


def plans_of(
    setup: Setup, found: FoundPolicies, single: str, methods: Sequence[str]
) -> list[EnsembleRun]:
    """Return the baselines and the three ways, each with its runs."""
    count = len(found.members)
    plans = [
        EnsembleRun(method, line.run, (line.policy,) * count)
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
        plans += [EnsembleRun(way, run, cut) for run in range(repeats)]
    return plans


def score_plans(
    setup: Setup, members: Sequence[Predictor], plans: Sequence[EnsembleRun], directory: Path | None
) -> Found:
    """Predict each member's distinct views once, and score the ensemble and each member."""
    views = [[v for plan in plans for v in plan.views(place)] for place in range(len(members))]
    passes = [len(distinct_views(own)[0]) * len(setup.dataset) for own in views]
    read = []
    for member, own, report in zip(
        members, views, progress_shares(setup.progress, passes), strict=True
    ):
        here = replace(setup, predictor=member, progress=report)
        read.append(predicted(replace(here, store=store_path_of(here, own, directory)), own))
    found = Found()
    for plan in plans:
        lengths = plan.lengths(setup.budgets)
        alone = POLICY_METHOD if plan.method == PER_MEMBER else plan.method
        totals: dict[int, FloatArray] = {}
        count, predictions = plan.predictions(read)
        for place, log_probs in enumerate(predictions):
            policy = plan.policies[place]
            entries = {budget: each[place] for budget, each in lengths.items()}
            for budget, mean in _means(policy, log_probs, entries).items():
                totals[budget] = totals.get(budget, 0.0) + np.exp(mean) / count
                if alone not in WAYS:
                    scored = setup.evaluated(mean, policy.view_temperature)
                    found.add((alone, budget), place, scored, policy[: entries[budget]].views)
        for budget, total in totals.items():
            with np.errstate(divide="ignore"):  # predictions from elsewhere may hold 0
                scored = setup.evaluated(np.log(total))
            spent = plan.policies[0][: lengths[budget][0]].views
            found.add((plan.method, budget), None, scored, spent)
    return found


def _means(
    policy: Policy, log_probs: LogProbs, lengths: Mapping[int, int]
) -> dict[int, FloatArray]:
    """Return the log of the mean probability `[n, c]` of a policy's views at each budget."""
    prefixes = sorted(set(lengths.values()))
    means = prefix_log_probs(map(policy.tempered, log_probs), prefixes)
    found = dict(zip(prefixes, means, strict=True))
    return {budget: found[length] for budget, length in lengths.items()}


def rows_of(
    setup: Setup,
    evaluations: Mapping[Key, Sequence[Evaluation]],
    views: Mapping[Key, int],
    members: int,
) -> Iterator[Result]:
    """Yield the metrics of each method at each budget, and its differences to others."""
    cll = {
        key: float(np.mean([one.metrics["cll"] for one in own])) for key, own in evaluations.items()
    }
    for key in evaluations:
        method, budget = key
        keys = {
            "data": setup.dataset.name,
            "method": method,
            "label": WAYS.get(method) or label_of(method),
            "budget": budget,
            "views": views[key],
            "members": members,
            "passes": members * views[key],
            "images": len(setup.dataset),
        }
        others = {"rival": best_rival(key, cll), "plain": ("plain", 1)}
        if method in WAYS:
            others["single"] = (SINGLE, budget)
        yield from measured_rows(setup, evaluations, key, others, keys)


def _mean(runs: Sequence[Evaluation]) -> Evaluation:
    """Return the mean of a member's runs."""
    return Evaluation(
        {name: float(np.mean([one.metrics[name] for one in runs])) for name in runs[0].metrics},
        {name: per_image(runs, name) for name in runs[0].per_image},
        {"cll": np.mean([one.samples["cll"] for one in runs], axis=0)},
    )
