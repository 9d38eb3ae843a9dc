"""Predict a search's pool (all of it, or the survivors of a race), and select from it."""

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
from relook.predictions.passes import HasNextRound, View, fill_store, predict_views
from relook.predictions.store import Predictions
from relook.selection.objectives import class_weights
from relook.selection.plan import plan_selection
from relook.selection.racing import race
from relook.selection.record import TRACE, Log, Selected, Selection, select, selection_identity


@dataclass(frozen=True)
class PoolPredictions:
    """The candidates to select from, as ascending places in the pool, and their predictions.

    `race` is a race's record, if there was one.
    """

    candidates: Indices
    predictions: Predictions
    race: Mapping[str, Any] | None = None

    @property
    def is_cut(self) -> bool:
        """Whether a race has dropped candidates."""
        return self.race is not None and self.race["passes"] < self.race["full_passes"]


@dataclass(frozen=True)
class Probe:
    """The choice between variants of a recipe, by a few views of `images` search images.

    `tried` lists the changes in order: the gain in cLL, its standard error, and whether the change
    was taken; `gain` and `error` are those of all changes taken.
    """

    images: int
    tried: tuple[Mapping[str, Any], ...]
    gain: float
    error: float

    def __str__(self) -> str:
        taken = ", ".join(change["change"] for change in self.tried if change["taken"])
        if not taken:
            return f"no change of the recipe is better on {self.images:,} search images"
        gain = f"{self.gain:.3f} ± {self.error:.3f} (standard error)"
        return f"{taken}: better by {gain} on {self.images:,} search images"


def choose_variant(
    job: SearchJob, progress: StageProgress | None, log: Log | None
) -> tuple[SearchJob, Probe | None]:
    """Return the job with the best variant of its recipe, by predictions; the stage is "probe".

    A change of the recipe is taken if it is better by the change's own number of standard errors:
    on some search images, or, in a cross-fit, on those of each half.
    """
    variants, images = job.recipe_variants, job.probed_images
    if not variants:
        return job, None
    labels, groups = job.labels[images], None if job.groups is None else job.groups[images]
    weights = class_weights(labels) if job.settings.balanced else np.ones(len(labels))
    views = tuple(dict.fromkeys(view for own in variants.values() for view in own))
    log_probs = _predict_part(job, views, images, "probe.zarr", stage_of(progress, "probe"))
    scores = {}
    for recipe, own in variants.items():
        average = mean_log_probs(log_probs[[views.index(view) for view in own]])
        temperature = fit_temperature(average, labels, weights, groups=groups)
        scores[recipe] = temper(average, temperature)[np.arange(len(labels)), labels]
    everywhere = np.arange(len(labels))
    halves = [np.flatnonzero(np.isin(job.split.search[images], half)) for half in job.halves]

    def gain_on(part: Indices, gains: FloatArray) -> tuple[float, float]:
        units = None if groups is None else group_numbers(groups[part], len(part))
        return mean_and_error(gains[part], weights[part], units)

    first = recipe = job.settings.recipe
    tried = []
    for change in CHANGES:
        other = change.apply(recipe)
        if other != recipe:
            gains = scores[other] - scores[recipe]
            on_parts = [gain_on(part, gains) for part in halves or [everywhere]]
            taken = all(gain > change.threshold * error for gain, error in on_parts)
            gain, error = gain_on(everywhere, gains)
            tried.append(
                {"change": change.description, "gain": gain, "error": error, "taken": taken}
            )
            recipe = other if taken else recipe
    gain, error = gain_on(everywhere, scores[recipe] - scores[first])
    probe = Probe(len(labels), tuple(tried), gain, error)
    if recipe != first and log is not None:
        log(str(probe))
    return with_variant(job, recipe, log_probs.shape[2]), probe


def _predict_part(
    job: SearchJob,
    views: Sequence[SubPolicy],
    images: Indices,
    name: str,
    progress: Progress | None,
    indices: Sequence[int] | None = None,
) -> NDArray[np.float32]:
    """Predict views of some search images; `indices` are the views' places in the pool."""
    places = job.split.search[images]
    return predict_views(
        job.predictor,
        job.dataset.images[places],
        [View(*pair) for pair in zip(views, indices or range(len(views)), strict=True)],
        seed=job.settings.seed,
        indices=places,
        batch=job.settings.batch,
        store_path=job.store_path(name),
        progress=progress,
    )


def predict_pool(
    job: SearchJob, progress: StageProgress | None, has_next: HasNextRound | None = None
) -> PoolPredictions:
    """Predict a search's pool; the stages are "predict" and, if it is read from disk, "map".

    With `has_next`, which needs a store, it is predicted in rounds, perhaps not to the end.
    """
    if job.settings.race:
        return _race_pool(job, stage_of(progress, "predict"))
    candidates = np.array([view.index for view in job.views])
    images, path = job.dataset.images[job.split.search], job.store_path("predictions.zarr")
    how: dict[str, Any] = {
        "seed": job.settings.seed,
        "indices": job.split.search,
        "batch": job.settings.batch,
        "progress": stage_of(progress, "predict"),
    }
    if path is None:
        log_probs = predict_views(job.predictor, images, job.views, **how)
        dtype = job.settings.stored_type(log_probs.shape[2])
        return PoolPredictions(candidates, Predictions.of(log_probs.astype(dtype, copy=False)))
    store = fill_store(
        job.predictor,
        images,
        job.views,
        path,
        precision=job.settings.store_precision,
        beside=job.directory,
        has_next=has_next,
        **how,
    )
    map_progress = stage_of(progress, "map")
    return PoolPredictions(
        candidates[: store.plan.views],
        Predictions(
            store.plan.shape,
            store.dtype,
            store.read_all,
            lambda: mapped_predictions(store, map_progress),
        ),
    )


def _race_pool(job: SearchJob, progress: Progress | None) -> PoolPredictions:
    settings = job.settings

    def predict(
        name: str, candidates: Indices, images: Indices, report: Progress | None
    ) -> NDArray[np.float32]:
        views = [job.pool.candidates[candidate] for candidate in candidates]
        return _predict_part(job, views, images, f"race-{name}.zarr", report, candidates.tolist())

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
    """Select from the predictions; in a run directory, go on where an earlier call stopped."""
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
        del record["start_from"]  # traces older than this setting stay valid
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
    """Select from the same predictions by each half of the images alone, for a cross-fit."""
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
    """Return the selection as a policy, with a temperature for each prefix."""
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
