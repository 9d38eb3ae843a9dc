"""Policies for an ensemble: each member's pool is predicted once, and serves every search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from relook.errors import RelookError, RunError
from relook.foundation.memory import default_limit
from relook.foundation.progress import StageProgress
from relook.models import EnsemblePredictor, Predictor
from relook.numerics.arrays import LogProbs
from relook.numerics.calibration import LOG_FLOOR
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
from relook.predictions.store import Predictions
from relook.selection.record import Log

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
    if whole.directory is not None:  # the members' predictions are kept, and make it again
        (whole.directory / MEAN).unlink(missing_ok=True)
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
    if settings.race:
        raise RelookError("a race drops other candidates for each member: search without --race")


def _part(progress: StageProgress | None, number: int, parts: int) -> StageProgress | None:
    """Report one search's passes or steps as part of all."""
    if progress is None:
        return None

    def report(stage: str, done: int, total: int, score: float | None = None, /) -> None:
        progress(stage, number * total + done, parts * total, score)

    return report
