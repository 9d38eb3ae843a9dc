"""A search's predictions of its pool, all of it or what a race leaves, and selecting from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.foundation.memory import check_limit, default_limit, size_text
from relook.foundation.progress import Progress, StageProgress, stage_of
from relook.models import Predictor
from relook.policy import SubPolicy
from relook.policy.pool import conservative_pool
from relook.policy_search.run_record import settings_record
from relook.predictions.array import Predictions
from relook.predictions.memmap import mapped_predictions
from relook.predictions.passes import View, distinct_views, fill_store, predict_views
from relook.predictions.store import stored_type
from relook.selection.plan import SelectionPlan, plan_selection
from relook.selection.racing import most_passes, most_survivors
from relook.selection.racing import race as run_race
from relook.selection.record import TRACE, Selected, Tell, select, selection_identity

if TYPE_CHECKING:
    from relook.policy_search.settings import SearchSettings


@dataclass(frozen=True)
class PoolPredictions:
    """What to select from: candidates as places in the pool, rising, and their predictions.

    Of equal candidates the first is there, which is the one that a tie goes to. `race` is a
    race's record, if there was one.
    """

    candidates: NDArray[np.int64]
    predictions: Predictions
    race: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class PoolJob:
    """Which views of which images to predict, and the run's directory, if there is one."""

    predictor: Predictor
    dataset: Dataset
    chosen: NDArray[np.int64]
    pool: Sequence[SubPolicy]
    settings: SearchSettings
    directory: Path | None
    store: str | None = None
    """A path or a URL for predictions, where they are not kept in the run's directory."""

    def place(self, name: str) -> str | Path | None:
        """Return where predictions of this name are kept, None where they are not kept."""
        if self.store is not None:
            return f"{self.store.rstrip('/')}/{name}"
        return None if self.directory is None else self.directory / name

    def arguments(self, places: NDArray[np.int64]) -> dict[str, Any]:
        """Return what every way to predict is told."""
        return {"seed": self.settings.seed, "indices": places, "batch": self.settings.batch}


def precision_of(settings: SearchSettings, classes: int) -> str:
    """Return the type that a search keeps its predictions in; a race works in float32."""
    if not settings.race:
        return stored_type(settings.store_precision, classes)
    if settings.store_precision == "float16":
        raise RelookError("a race works in float32: leave out --store-precision, or --race")
    return stored_type("float32", classes)


def predict_pool(
    job: PoolJob, progress: Progress | None, on_map: Progress | None
) -> PoolPredictions:
    """Predict a search's pool; `on_map` hears of views copied, where they are mapped later."""
    if job.settings.race:
        return _raced(job, progress)
    views, _ = distinct_views([View(sub, index) for index, sub in enumerate(job.pool)])
    candidates = np.array([view.index for view in views])
    images, arguments = job.dataset.images[job.chosen], job.arguments(job.chosen)
    place = job.place("predictions.zarr")
    if place is None:
        log_probs = predict_views(job.predictor, images, views, progress=progress, **arguments)
        dtype = precision_of(job.settings, log_probs.shape[2])
        return PoolPredictions(candidates, _held(log_probs.astype(dtype, copy=False)))
    store = fill_store(
        job.predictor,
        images,
        views,
        place,
        progress=progress,
        precision=job.settings.store_precision,
        beside=job.directory,
        **arguments,
    )
    return PoolPredictions(
        candidates,
        Predictions(
            store.plan.shape,
            store.dtype,
            store.read_all,
            lambda: mapped_predictions(store, on_map),
        ),
    )


def _raced(job: PoolJob, progress: Progress | None) -> PoolPredictions:
    precision_of(job.settings, len(job.dataset.classes))

    def predict(
        name: str, which: NDArray[np.int64], images: NDArray[np.int64], report: Progress | None
    ) -> NDArray[np.float32]:
        places = job.chosen[images]
        return predict_views(
            job.predictor,
            job.dataset.images[places],
            [View(job.pool[index], int(index)) for index in which],
            store_path=job.place(f"race-{name}.zarr"),
            progress=report,
            **job.arguments(places),
        )

    result = run_race(
        predict,
        job.dataset.labels[job.chosen],
        len(job.pool),
        job.settings.length,
        objective=job.settings.objective,
        balanced=job.settings.balanced,
        seed=job.settings.seed,
        kept=range(kept_in_race(job.settings)),
        progress=progress,
    )
    return PoolPredictions(result.survivors, _held(result.log_probs), result.to_json())


def plan_pool(
    settings: SearchSettings, shape: tuple[int, int, int], *, on_disk: bool
) -> SelectionPlan:
    """Return what selecting from a pool will take, or say that it does not fit.

    `shape` is candidates, images and classes; a race holds what it predicts in memory.
    """
    candidates, images, classes = shape
    limit = default_limit() if settings.memory is None else check_limit(settings.memory)
    if settings.race:
        most = most_passes(images, candidates, settings.length, kept_in_race(settings))
        left = most_survivors(images, candidates, settings.length)
        held = 4 * (most + left * images) * classes  # in parts, and those left once more together
        if held > limit:
            raise RelookError(
                f"a race holds its predictions in memory, up to {size_text(held)}, "
                f"got a limit of {size_text(limit)}: raise --memory, or search without --race"
            )
        candidates = left
    return plan_selection(
        (candidates, images, classes),
        np.dtype(precision_of(settings, classes)),
        settings.objective,
        limit,
        on_disk=on_disk and not settings.race,
        steady=_spread(settings) > 0,
    )


def select_from_pool(
    job: PoolJob, predicted: PoolPredictions, progress: StageProgress | None, tell: Tell | None
) -> Selected:
    """Select among what was predicted; in a run directory, from where an earlier call stopped."""
    settings, labels = job.settings, job.dataset.labels[job.chosen]
    groups = None if job.dataset.groups is None else job.dataset.groups[job.chosen]
    record = settings_record(job.predictor, job.dataset, settings, None)
    del record["length"]  # the first picks are the same for every length

    return select(
        predicted.predictions,
        labels,
        settings.length,
        settings.objective,
        balanced=settings.balanced,
        memory=settings.memory,
        identity=selection_identity(
            [record, job.chosen, predicted.candidates, groups],
            labels,
            settings.objective,
            settings.balanced,
        ),
        path=None if job.directory is None else job.directory / TRACE,
        progress=stage_of(progress, "select"),
        tell=tell,
        defaults=_defaults(settings, predicted.candidates),
        groups=groups,
        preselected=_has_dropped(predicted.race),
    )


def _has_dropped(race: Mapping[str, Any] | None) -> bool:
    """Whether there was a race, and enough images for a round in it."""
    return race is not None and race["passes"] < race["full_passes"]


def _defaults(settings: SearchSettings, candidates: NDArray[np.int64]) -> list[int]:
    """Return which rows of the predictions are the views that a steady pool begins with."""
    return [int(row) for row in np.flatnonzero(candidates < _spread(settings))]


def kept_in_race(settings: SearchSettings) -> int:
    """Return how many of the pool's first views a race never drops."""
    return min(_spread(settings), math.ceil(settings.length / 2))


def _spread(settings: SearchSettings) -> int:
    """Return how many evenly spread views the pool begins with."""
    if settings.strategy != "steady":
        return 0
    return len(conservative_pool(settings.recipe, settings.pool_size, settings.seed)[0])


def _held(log_probs: NDArray[Any]) -> Predictions:
    return Predictions(log_probs.shape, log_probs.dtype, lambda: log_probs)
