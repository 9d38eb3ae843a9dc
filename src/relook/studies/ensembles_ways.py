"""Three ways to search policies for an ensemble, and their scores; no view is predicted twice.

Each member's pool is predicted once, for all searches; members are scored with equally many views.
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
from relook.studies.study import (
    check_has_held_out_images,
    measured_rows,
    predictions_path,
    split_progress,
)

SINGLE, ENSEMBLE, PER_MEMBER = "single", "ensemble", "per-member"
WAYS: Mapping[str, str] = {
    SINGLE: "one member's policy (GPS single)",
    ENSEMBLE: "the ensemble's policy (GPS ensemble)",
    PER_MEMBER: "a policy for each member (GPS each)",
}
"""The ways to apply the search to an ensemble, with their names in tables."""

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
    """Search a policy for each member and one for the ensemble, with the job's settings.

    The ensemble's predictions of the pool are the mean probabilities of its members. The job's
    directory stores everything: the same call resumes there. Predictions of members in `pools`
    are in the directory of that run.
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
        _search_policy(one, own, _part(progress, number, len(jobs) + 1), None if number else log)
        for number, (one, own) in enumerate(zip(jobs, predicted, strict=True))
    ]
    whole = replace(
        job,
        predictor=EnsemblePredictor(list(members.values())),
        directory=job.directory and job.directory / "ensemble",
    )
    mean = mean_predictions(predicted, whole.directory, job.settings.memory)
    ensemble = _search_policy(whole, mean, _part(progress, len(jobs), len(jobs) + 1), None)
    if job.directory is not None:
        (job.directory / "ensemble" / MEAN).unlink(missing_ok=True)  # large, and cheap to remake
        ensemble.save(job.directory / "policies" / "ensemble.json")
        for number, policy in enumerate(policies, start=1):
            policy.save(job.directory / "policies" / f"member-{number}.json")
    return FoundPolicies(dict(zip(members, policies, strict=True)), ensemble)


def mean_predictions(
    predicted: Sequence[PoolPredictions], directory: Path | None, memory: int | None = None
) -> PoolPredictions:
    """Return the members' mean probabilities as float32 log-probabilities `[k, n, c]`.

    With a `directory` they are written to a file, anew at each call, so that they need not fit
    into memory; members are read one after another.
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
                # The log of (number · mean so far + this member) / (number + 1).
                total = out[part].astype(np.float64) + np.log(number)
                own = np.logaddexp(total, own) - np.log(number + 1)
            out[part] = np.maximum(own, LOG_FLOOR)


def _search_policy(
    job: SearchJob, predicted: PoolPredictions, progress: StageProgress | None, log: Log | None
) -> Policy:
    return policy_of(job, predicted, select_from_pool(job, predicted, progress, log))


def check_members(members: Mapping[str, Predictor], settings: SearchSettings) -> None:
    """Raise unless the members form an ensemble whose searches can share predictions."""
    if len(members) < 2:
        raise RelookError(f"expected at least two models for an ensemble, got {len(members)}")
    EnsemblePredictor(list(members.values()))  # raises if the members do not fit together
    check_has_held_out_images(settings)
    if settings.race:
        raise RelookError(
            "a race drops different candidates for each member: search without --race"
        )


def _part(progress: StageProgress | None, number: int, parts: int) -> StageProgress | None:
    """Return a callback that reports one search's passes or steps as part of those of all."""
    if progress is None:
        return None

    def report(stage: str, done: int, total: int, score: float | None = None, /) -> None:
        progress(stage, number * total + done, parts * total, score)

    return report


@dataclass
class Scores:
    """Evaluations by method and budget.

    `runs` has those of each run, for each member (by its number) and for all together (None);
    `views` is the number of views per image and member.
    """

    runs: dict[tuple[Key, int | None], list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)

    def add(self, key: Key, member: int | None, evaluation: Evaluation, views: int) -> None:
        """Add a run's evaluation."""
        self.runs.setdefault((key, member), []).append(evaluation)
        self.views[key] = max(views, self.views.get(key, 0))

    def together(self) -> dict[Key, list[Evaluation]]:
        """Return the runs of the whole ensemble."""
        return {key: own for (key, member), own in self.runs.items() if member is None}

    def members(self) -> dict[Key, list[Evaluation]]:
        """Return each member's mean over its runs."""
        means: dict[Key, list[Evaluation]] = {}
        for (key, member), own in self.runs.items():
            if member is not None:
                means.setdefault(key, []).append(_mean(own))
        return means


@dataclass(frozen=True)
class EnsembleRun:
    """One method in one run, with the policy of each member."""

    method: str
    run: int
    policies: tuple[Policy, ...]

    def views(self, member: int) -> list[View]:
        """Return the views of a member, one per entry."""
        return MethodRun(self.method, self.run, self.policies[member]).views

    def predictions(self, read: Sequence[ReadViews]) -> tuple[int, Iterator[LogProbs]]:
        """Return the predictions `[view, n, c]` to average, one per member, and their number.

        If all members share a policy with a view temperature, that applies to the members' mean,
        so there is a single prediction.
        """
        each = (own(self.views(place)) for place, own in enumerate(read))
        if self.method == PER_MEMBER or self.policies[0].view_temperature == 1:
            return len(read), each
        total = sum(np.exp(log_probs, dtype=np.float64) for log_probs in each)
        with np.errstate(divide="ignore"):  # predictions from elsewhere may hold 0
            return 1, iter([np.log(total / len(read))])

    def lengths(self, budgets: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return how many entries each member uses at each budget, for equal numbers of views."""
        row = BASELINES.get(self.method)
        if row is not None and row.budget is not None:
            return {row.budget: tuple(map(len, self.policies))}
        least = min(policy.views for policy in self.policies)
        return {
            budget: tuple(len(one.for_budget(min(budget, least))) for one in self.policies)
            for budget in budgets
        }


def make_plans(
    setup: Setup, policies: FoundPolicies, single: str, methods: Sequence[str]
) -> list[EnsembleRun]:
    """Return all runs of the baselines and of the three ways."""
    count = len(policies.members)
    plans = [
        EnsembleRun(method, line.run, (line.policy,) * count)
        for method in methods
        if method != POLICY_METHOD
        for line in lines_of(setup, method, ())
    ]
    ways = {
        SINGLE: (policies.members[single],) * count,
        ENSEMBLE: (policies.ensemble,) * count,
        PER_MEMBER: tuple(policies.members.values()),
    }
    for way, own in ways.items():
        repeats = 1 if all(policy.is_fixed for policy in own) else setup.runs
        cut = tuple(policy.for_budget(setup.budgets[-1]) for policy in own)
        plans += [EnsembleRun(way, run, cut) for run in range(repeats)]
    return plans


def score_plans(
    setup: Setup, members: Sequence[Predictor], plans: Sequence[EnsembleRun], directory: Path | None
) -> Scores:
    """Predict each member's distinct views once, and score the ensemble and each member."""
    views = [[v for plan in plans for v in plan.views(place)] for place in range(len(members))]
    passes = [len(distinct_views(own)[0]) * len(setup.dataset) for own in views]
    read = []
    for member, own, report in zip(
        members, views, split_progress(setup.progress, passes), strict=True
    ):
        here = replace(setup, predictor=member, progress=report)
        read.append(predicted(replace(here, store=predictions_path(here, own, directory)), own))
    scores = Scores()
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
                    evaluation = setup.evaluated(mean, policy.view_temperature)
                    views_used = policy[: entries[budget]].views
                    scores.add((alone, budget), place, evaluation, views_used)
        for budget, total in totals.items():
            with np.errstate(divide="ignore"):  # predictions from elsewhere may hold 0
                evaluation = setup.evaluated(np.log(total))
            views_used = plan.policies[0][: lengths[budget][0]].views
            scores.add((plan.method, budget), None, evaluation, views_used)
    return scores


def _means(
    policy: Policy, log_probs: LogProbs, lengths: Mapping[int, int]
) -> dict[int, FloatArray]:
    """Return the log of the mean probability `[n, c]` of a policy's views at each budget."""
    prefixes = sorted(set(lengths.values()))
    means = prefix_log_probs(map(policy.tempered, log_probs), prefixes)
    by_length = dict(zip(prefixes, means, strict=True))
    return {budget: by_length[length] for budget, length in lengths.items()}


def result_rows(
    setup: Setup,
    evaluations: Mapping[Key, Sequence[Evaluation]],
    views: Mapping[Key, int],
    members: int,
) -> Iterator[Result]:
    """Yield each method's metrics at each budget, and its differences to others."""
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
