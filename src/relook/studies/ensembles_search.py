"""Policies for an ensemble: each member's pool is predicted once, and serves every search."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError, RunError
from relook.foundation.memory import default_limit
from relook.foundation.progress import StageProgress
from relook.models import EnsemblePredictor, Predictor
from relook.numerics.arrays import LogProbs
from relook.numerics.calibration import LOG_FLOOR
from relook.policy import Policy
from relook.policy_search.pool_predictions import (
    PoolJob,
    PoolPredictions,
    plan_pool,
    predict_pool,
    select_from_pool,
)
from relook.policy_search.search import pool_of
from relook.policy_search.settings import SearchSettings
from relook.predictions.array import Predictions
from relook.selection.record import Tell

MEAN = "mean.npy"
_BLOCK = 16  # candidates averaged at a time


@dataclass(frozen=True)
class FoundPolicies:
    """A policy for each member, by name, and the one found on the ensemble's mean."""

    members: Mapping[str, Policy]
    ensemble: Policy


def search_policies(
    members: Mapping[str, Predictor],
    dataset: Dataset,
    chosen: NDArray[np.int64],
    settings: SearchSettings,
    *,
    directory: Path | None = None,
    pools: Mapping[str, Path] = MappingProxyType({}),
    progress: StageProgress | None = None,
    tell: Tell | None = None,
) -> FoundPolicies:
    """Search for each member and for the ensemble on the images at `chosen`.

    The ensemble's predictions of the pool are the mean probabilities of its members, so no
    view is predicted twice. With a `directory` all is kept there, and the same call goes on;
    members in `pools` have their predictions in that run's directory.
    """
    pool = pool_of(settings)
    jobs = [
        PoolJob(
            member,
            dataset,
            chosen,
            pool,
            settings,
            _below(directory, f"member-{number}"),
            store=str(pools[name]) if name in pools else None,
        )
        for number, (name, member) in enumerate(members.items(), start=1)
    ]
    images = len(chosen)
    plan_pool(settings, (len(pool), images, _classes(jobs)), on_disk=directory is not None)
    predicted = [
        predict_pool(job, _part(progress, number, len(jobs)), None)
        for number, job in enumerate(jobs)
    ]
    policies = [
        _policy(job, own, _steps(progress, number, len(jobs) + 1), None if number else tell)
        for number, (job, own) in enumerate(zip(jobs, predicted, strict=True))
    ]
    whole = replace(
        jobs[0],
        predictor=EnsemblePredictor(list(members.values())),
        store=None,
        directory=_below(directory, "ensemble"),
    )
    mean = mean_predictions(predicted, whole.directory, settings.memory)
    ensemble = _policy(whole, mean, _steps(progress, len(jobs), len(jobs) + 1), None)
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
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    mapped = 2 * size > (default_limit() if memory is None else memory)
    readers = [_reader(one.predictions, mapped) for one in predicted]
    if directory is None:
        mean = np.empty(shape, dtype)
        _average(readers, mean)
        return PoolPredictions(first.candidates, Predictions(shape, dtype, lambda: mean))
    path = directory / MEAN
    _write(path, shape, dtype, lambda array: _average(readers, array))
    return PoolPredictions(
        first.candidates,
        Predictions(
            shape,
            dtype,
            lambda: np.asarray(np.load(path, allow_pickle=False)),
            lambda: np.asarray(np.load(path, mmap_mode="r", allow_pickle=False)),
        ),
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


def _reader(predictions: Predictions, mapped: bool) -> Callable[[], LogProbs]:
    return predictions.map if mapped and predictions.map is not None else predictions.load


def _write(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill: Callable[[NDArray[Any]], None],
) -> None:
    """Make an .npy file, whole or not at all."""
    temporary = path.with_name(f".relook-{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(".relook-*.tmp"):
            leftover.unlink(missing_ok=True)
        array = open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
        fill(array)
        array.flush()
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def _policy(
    job: PoolJob, predicted: PoolPredictions, progress: StageProgress | None, tell: Tell | None
) -> Policy:
    trace = select_from_pool(job, predicted, progress, tell).result
    picks = [int(predicted.candidates[pick]) for pick in trace.picks]
    return Policy(
        tuple(job.pool[pick] for pick in picks),
        temperatures=trace.temperatures,
        recipe=job.settings.recipe.name,
        seed=job.settings.seed,
    )


def check_members(members: Mapping[str, Predictor], settings: SearchSettings) -> None:
    """Raise unless the members make an ensemble, and its search can share their predictions."""
    if len(members) < 2:
        raise RelookError(f"expected at least two models for an ensemble, got {len(members)}")
    EnsemblePredictor(list(members.values()))  # says in one line who differs
    if settings.race:
        raise RelookError("a race drops other candidates for each member: search without --race")


def _classes(jobs: Sequence[PoolJob]) -> int:
    known = [job.predictor.classes for job in jobs if job.predictor.classes is not None]
    return known[0] if known else len(jobs[0].dataset.classes)


def _below(directory: Path | None, name: str) -> Path | None:
    return None if directory is None else directory / name


def _part(
    progress: StageProgress | None, number: int, parts: int
) -> Callable[[int, int], None] | None:
    """Report one member's passes as part of all."""
    if progress is None:
        return None
    return lambda done, total: progress("predict", number * total + done, parts * total)


def _steps(progress: StageProgress | None, number: int, parts: int) -> StageProgress | None:
    """Report one search's steps as part of all."""
    if progress is None:
        return None

    def report(stage: str, done: int, total: int, score: float | None = None) -> None:
        progress(stage, number * total + done, parts * total, score)

    return report
