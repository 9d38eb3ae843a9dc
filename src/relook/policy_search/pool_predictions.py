"""A search's predictions of its pool, all of it or what a race leaves, and selecting from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.evaluation.cross_validation import prefix_temperatures
from relook.foundation.progress import Progress, StageProgress, stage_of
from relook.io.identities import set_of, union
from relook.numerics.arrays import FloatArray, Indices, LogProbs
from relook.numerics.calibration import fit_temperature, mean_log_probs, temper
from relook.numerics.intervals import group_numbers, mean_and_error
from relook.numerics.splits import Split
from relook.policy import Policy, SubPolicy
from relook.policy.recipes import CHANGES
from relook.policy_search.job import SearchJob, kept_in_race, with_variant
from relook.predictions.memmap import mapped_predictions
from relook.predictions.passes import GoOn, View, fill_store, predict_views
from relook.predictions.store import Predictions
from relook.selection.objectives import class_weights
from relook.selection.plan import plan_selection
from relook.selection.racing import race
from relook.selection.record import TRACE, Log, Selected, Selection, select, selection_identity


@dataclass(frozen=True)
class PoolPredictions:
    """What to select from: candidates as places in the pool, rising, and their predictions.

    `race` is a race's record, if there was one.
    """

    candidates: Indices
    predictions: Predictions
    race: Mapping[str, Any] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether there was a race, and enough images for a round in it."""
        return self.race is not None and self.race["passes"] < self.race["full_passes"]


@dataclass(frozen=True)
class Probe:
    """What was chosen between variants of a recipe, by a few views of `images` search images.

    `tried` has each change in its order: its gain in cLL, the gain's standard error, and whether
    it was taken; `gain` and `error` are those of all that were.
    """

    images: int
    tried: tuple[Mapping[str, Any], ...]
    gain: float
    error: float

    def __str__(self) -> str:
        words = ", ".join(one["change"] for one in self.tried if one["taken"])
        if not words:
            return f"no change of the recipe is better on {self.images:,} search images"
        gain = f"{self.gain:.3f} ± {self.error:.3f} (standard error)"
        return f"{words}: better by {gain} on {self.images:,} search images"


def choose_variant(
    job: SearchJob, progress: StageProgress | None, log: Log | None
) -> tuple[SearchJob, Probe | None]:
    """Return the job with the variant of its recipe that predictions choose; the stage "probe".

    The recipe stays as it is unless a change of it is better, by as much as the change asks for:
    on all of some images, or on each half of them where these prove each other's views.
    """
    variants, which = job.probed, job.probed_images
    if not variants:
        return job, None
    labels, groups = job.labels[which], None if job.groups is None else job.groups[which]
    weights = class_weights(labels) if job.settings.balanced else np.ones(len(labels))
    units = _numbers(groups, np.arange(len(labels)))
    views = tuple(dict.fromkeys(view for own in variants.values() for view in own))
    log_probs = _predict_part(job, views, which, "probe.zarr", stage_of(progress, "probe"))
    scores = {}
    for recipe, own in variants.items():
        average = mean_log_probs(log_probs[[views.index(view) for view in own]])
        temperature = fit_temperature(average, labels, weights, groups=groups)
        scores[recipe] = temper(average, temperature)[np.arange(len(labels)), labels]
    first = recipe = job.settings.recipe
    parts = [np.flatnonzero(np.isin(job.split.search[which], half)) for half in job.halves]

    def is_better(gains: FloatArray, threshold: float) -> bool:
        found = (
            mean_and_error(gains[part], weights[part], _numbers(groups, part))
            for part in parts or [np.arange(len(labels))]
        )
        return all(gain > threshold * error for gain, error in found)

    tried = []
    for change in CHANGES:
        other = change.apply(recipe)
        if other != recipe:
            gains = scores[other] - scores[recipe]
            gain, error = mean_and_error(gains, weights, units)
            taken = is_better(gains, change.threshold)
            tried.append(
                {"change": change.description, "gain": gain, "error": error, "taken": taken}
            )
            recipe = other if taken else recipe
    gain, error = mean_and_error(scores[recipe] - scores[first], weights, units)
    probe = Probe(len(labels), tuple(tried), gain, error)
    if recipe != first and log is not None:
        log(str(probe))
    return with_variant(job, recipe, log_probs.shape[2]), probe


def _numbers(groups: Indices | None, places: Indices) -> Indices | None:
    return None if groups is None else group_numbers(groups[places], len(places))


def _predict_part(
    job: SearchJob,
    views: Sequence[SubPolicy],
    images: Indices,
    name: str,
    progress: Progress | None,
    indices: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Predict views (of the pool, if `indices` say which) of some of the search images."""
    places = job.split.search[images]
    return predict_views(
        job.predictor,
        job.dataset.images[places],
        [View(*one) for one in zip(views, indices or range(len(views)), strict=True)],
        seed=job.settings.seed,
        indices=places,
        batch=job.settings.batch,
        store_path=job.place(name),
        progress=progress,
    )


def predict_pool(
    job: SearchJob, progress: StageProgress | None, go_on: GoOn | None = None
) -> PoolPredictions:
    """Predict a search's pool; the stages are "predict" and, where it is read from disk, "map".

    With `go_on`, which needs a store, it comes in rounds, and the first candidates may do.
    """
    if job.settings.race:
        return _raced(job, stage_of(progress, "predict"))
    candidates = np.array([view.index for view in job.views])
    images, place = job.dataset.images[job.split.search], job.place("predictions.zarr")
    how: dict[str, Any] = {
        "seed": job.settings.seed,
        "indices": job.split.search,
        "batch": job.settings.batch,
        "progress": stage_of(progress, "predict"),
    }
    if place is None:
        log_probs = predict_views(job.predictor, images, job.views, **how)
        kept = job.settings.stored_type(log_probs.shape[2])
        return PoolPredictions(candidates, Predictions.of(log_probs.astype(kept, copy=False)))
    store = fill_store(
        job.predictor,
        images,
        job.views,
        place,
        precision=job.settings.store_precision,
        beside=job.directory,
        go_on=go_on,
        **how,
    )
    mapped = stage_of(progress, "map")
    return PoolPredictions(
        candidates[: store.plan.views],
        Predictions(
            store.plan.shape,
            store.dtype,
            store.read_all,
            lambda: mapped_predictions(store, mapped),
        ),
    )


def _raced(job: SearchJob, progress: Progress | None) -> PoolPredictions:
    settings = job.settings

    def predict(
        name: str, which: Indices, images: Indices, report: Progress | None
    ) -> NDArray[np.float32]:
        subs = [job.pool.candidates[index] for index in which]
        return _predict_part(job, subs, images, f"race-{name}.zarr", report, which.tolist())

    found = race(
        predict,
        job.labels,
        len(job.pool.candidates),
        settings.length,
        objective=settings.objective,
        balanced=settings.balanced,
        seed=settings.seed,
        kept=range(kept_in_race(settings, job.pool)),
        progress=progress,
    )
    return PoolPredictions(found.survivors, Predictions.of(found.log_probs), found.to_json())


def select_from_pool(
    job: SearchJob,
    predicted: PoolPredictions,
    progress: StageProgress | None,
    log: Log | None,
    trace: str = TRACE,
    stage: str = "select",
) -> Selected:
    """Select among what was predicted; in a run directory, from where an earlier call stopped."""
    settings, candidates, groups = job.settings, predicted.candidates, job.groups
    selection = Selection(
        predicted.predictions,
        job.labels,
        settings.length,
        settings.objective,
        balanced=settings.balanced,
        defaults=[int(row) for row in np.flatnonzero(candidates < job.pool.defaults)],
        in_order=job.pool.in_order,
        groups=groups,
        preselected=predicted.is_cut,
        view_temperature=settings.view_temperature,
    )
    record = {**job.record(), "test": None}
    del record["length"]  # the first picks are the same for every length
    if not job.settings.start_from:
        del record["start_from"]  # as before there was such a setting
    return select(
        selection,
        job.plan,
        identity=selection_identity(selection, [record, job.split.search, candidates, groups]),
        path=None if job.directory is None else job.directory / trace,
        progress=stage_of(progress, stage),
        log=log,
    )


def search_halves(
    job: SearchJob,
    predicted: PoolPredictions,
    log_probs: LogProbs,
    progress: StageProgress | None,
) -> tuple[Policy, ...]:
    """Select from the same predictions by each half of the images alone, if that is asked for."""
    found = []
    for number, places in enumerate(job.halves, 1):
        part = log_probs[:, places]
        half = replace(
            job,
            split=Split(places, places),
            plan=plan_selection(
                part.shape,
                part.dtype,
                job.settings.objective,
                job.plan.limit,
                on_disk=False,
                conservative=job.pool.defaults > 0,
                view_temperature=job.settings.view_temperature,
            ),
        )
        own = replace(predicted, predictions=Predictions.of(part))
        trace, stage = f"half-{number}-{TRACE}", f"half {number}"
        selected = select_from_pool(half, own, progress, None, trace, stage)
        found.append(policy_of(half, own, selected))
    return tuple(found)


def policy_of(job: SearchJob, predicted: PoolPredictions, selected: Selected) -> Policy:
    """Return what was selected as a policy, with a temperature for each prefix."""
    rows = selected.result.picks
    weights = class_weights(job.labels) if job.settings.balanced else None
    policy = Policy(
        tuple(job.pool.candidates[predicted.candidates[row]] for row in rows),
        recipe=job.settings.recipe.name,
        seed=job.settings.seed,
        view_temperature=selected.result.view_temperature,
        preparation=job.dataset.prepared,
        seen=union(
            set_of(job.dataset.identities[job.split.search]),
            *(policy.seen for policy in job.settings.start_from),
        ),
    )
    entries = (policy.tempered(selected.log_probs[row]) for row in rows)
    fitted = prefix_temperatures(
        entries, len(rows), job.labels, weights, job.groups, policy.view_temperature
    )
    return replace(policy, temperatures=fitted)
