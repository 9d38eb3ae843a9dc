"""From a model and labelled images to a policy: pool → predictions → selection → held-out proof.

The paper's Algorithm 1, with a share of the images held out so that a gain is never claimed
on the images that it was found on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relook.compare import compare
from relook.comparison import Comparison
from relook.data.base import Dataset
from relook.data.class_map import chance_note
from relook.errors import RelookError
from relook.models import Predictor, as_predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.objectives import UserObjective
from relook.policy import DrawKind, Policy, SubPolicy
from relook.pool import sample_pool
from relook.predict import View, predict_views
from relook.preflight import check_search
from relook.racing import race as run_race
from relook.recipes import Recipe, get_recipe
from relook.run_directory import RunDirectory
from relook.run_record import record_search, settings_record
from relook.selection import SearchResult, greedy_search
from relook.splits import stratified_split

Progress = Callable[[str, int, int], None]
"""Called with the stage ("predict", "select", "evaluate"), the units done and their total."""

FEW_IMAGES = 200


@dataclass(frozen=True)
class SearchSettings:
    """What decides a search's result, beside model and data."""

    recipe: Recipe
    length: int = 20
    pool_size: int | None = None
    seed: int = 0
    draws: DrawKind = "fixed"
    objective: str | UserObjective = "cll"
    balanced: bool = False
    holdout: float = 1 / 3
    batch: int | None = None
    plain: bool = True
    accelerate: str = "torch"
    precision: str = "auto"
    compiled: bool = False
    race: bool = False


@dataclass(frozen=True)
class PolicySearch:
    """What a search found: the policy, its trace, and how it does on held-out images.

    `pool[trace.picks[t]]` is the sub-policy that step t + 1 added. `search_indices` and
    `held_out_indices` say which images were used for what; `notes` holds what a reader of
    the figures should know; `race` the rounds and the passes of a race, if there was one.
    """

    policy: Policy
    pool: tuple[SubPolicy, ...]
    trace: SearchResult
    comparison: Comparison
    search_indices: NDArray[np.int64]
    held_out_indices: NDArray[np.int64]
    timings: Mapping[str, float]
    notes: tuple[str, ...] = ()
    race: Mapping[str, Any] | None = None

    def _repr_html_(self) -> str:
        from relook.notebook import search_html

        return search_html(self)

    def __str__(self) -> str:
        return f"{self.policy}\n{self.comparison.verdict.sentence}"


def search(
    model: object,
    images: Tensor | NDArray[np.uint8],
    labels: ArrayLike,
    *,
    recipe: Recipe | str = "cifar",
    exclude: Sequence[str] = (),
    length: int = 20,
    pool_size: int | None = None,
    seed: int = 0,
    draws: DrawKind = "fixed",
    objective: str | UserObjective = "cll",
    balanced: bool = False,
    holdout: float = 1 / 3,
    test: tuple[Tensor | NDArray[np.uint8], ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    batch: int | None = None,
    plain: bool = True,
    accelerate: str = "torch",
    precision: str = "auto",
    compiled: bool = False,
    race: bool = False,
    run: str | Path | None = None,
    progress: Progress | None = None,
    **model_options: Any,
) -> PolicySearch:
    """Learn which views of an image to average, and prove it on images held out for that.

    `images` are uint8 `[n, c, h, w]`. `model` is a torch module, a function or a Predictor;
    `model_options` are its `mean`, `std`, `device`, `outputs`. A stratified share `holdout`
    of the images is kept for the proof, unless separate `test` images and labels are given;
    images of one group stay together. `plain=False` leaves the plain image out of the
    candidates, as the paper's ImageNet pool does. `batch` (default: by the images' size),
    `accelerate` ("auto", "torch", "channels-last" or "onnx"), `precision` and `compiled` are
    for speed; `race` predicts candidates of no promise on a part of the images only. With
    `run`, everything is kept in that directory, and the same call goes on where an
    interrupted one stopped.
    """
    dataset = _dataset("images", images, labels, classes, groups)
    settings = SearchSettings(
        recipe=get_recipe(recipe).without(exclude),
        length=length,
        pool_size=pool_size,
        seed=seed,
        draws=draws,
        objective=objective,
        balanced=balanced,
        holdout=holdout,
        batch=batch,
        plain=plain,
        accelerate=accelerate,
        precision=precision,
        compiled=compiled,
        race=race,
    )
    test_set = None if test is None else _dataset("test images", *test, dataset.classes, None)
    predictor = as_predictor(model, **model_options)
    found = search_dataset(predictor, dataset, settings, test=test_set, run=run, progress=progress)
    for note in found.notes:
        warnings.warn(note, stacklevel=2)
    return found


def search_dataset(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    *,
    test: Dataset | None = None,
    run: str | Path | None = None,
    progress: Progress | None = None,
    origin: Mapping[str, Any] | None = None,
) -> PolicySearch:
    """Run a search as `search` does; `origin` (command, specs) is kept in the run's record."""
    if settings.length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {settings.length}")
    _, held_out = split_images(dataset, settings, test)
    check_search(predictor, dataset, test, held_out, settings.objective)
    if run is None:
        fast = accelerated(predictor, dataset, settings)
        return _search(fast, dataset, settings, test, None, progress)
    with RunDirectory(run) as directory:
        directory.check_settings(settings_record(predictor, dataset, settings, test))
        fast = accelerated(predictor, dataset, settings, directory)
        found = _search(fast, dataset, settings, test, directory, progress)
        record_search(directory, found, predictor, dataset, settings, test, origin or {})
        return found


def accelerated(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    directory: RunDirectory | None = None,
) -> Accelerated:
    """Return the predictor on the engine that the settings, or an earlier run here, chose."""
    return accelerate_run(
        predictor,
        dataset.images,
        mode=settings.accelerate,
        precision=settings.precision,
        compiled=settings.compiled,
        record=None if directory is None else directory.path / "engine.json",
    )


def split_images(
    dataset: Dataset, settings: SearchSettings, test: Dataset | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which images the search sees and which are held out (all of `test` if given)."""
    if test is not None:
        return np.arange(len(dataset.labels)), np.arange(len(test.labels))
    return stratified_split(dataset.labels, settings.holdout, settings.seed, dataset.groups)


def pool_of(settings: SearchSettings) -> tuple[SubPolicy, ...]:
    """Return the candidates of a search."""
    return sample_pool(
        settings.recipe,
        settings.pool_size,
        settings.seed,
        draws=settings.draws,
        plain=settings.plain,
    )


def _search(
    model: Accelerated,
    dataset: Dataset,
    settings: SearchSettings,
    test: Dataset | None,
    directory: RunDirectory | None,
    progress: Progress | None,
) -> PolicySearch:
    predictor = model.predictor
    chosen, held_out = split_images(dataset, settings, test)
    pool = pool_of(settings)
    started = time.perf_counter()
    candidates, log_probs, raced = _predicted(
        predictor, dataset, chosen, pool, settings, directory, _stage(progress, "predict")
    )
    predicted = time.perf_counter()
    on_select = _stage(progress, "select")
    trace = greedy_search(
        log_probs,
        dataset.labels[chosen],
        settings.length,
        settings.objective,
        balanced=settings.balanced,
        progress=None if on_select is None else lambda done, total, _: on_select(done, total),
    )
    first = trace.picks[0]
    trace = replace(trace, picks=tuple(int(candidates[pick]) for pick in trace.picks))
    policy = Policy(
        tuple(pool[pick] for pick in trace.picks),
        temperatures=trace.temperatures,
        recipe=settings.recipe.name,
        seed=settings.seed,
    )
    selected = time.perf_counter()
    proof = test if test is not None else dataset
    comparison = compare(
        predictor,
        proof.subset(held_out),
        policy,
        indices=held_out,
        recipe=settings.recipe,
        budgets=(policy.views,),
        methods=("plain", "cf"),
        seed=settings.seed,
        batch=settings.batch,
        store_path=None if directory is None else directory.path / "heldout.zarr",
        progress=_stage(progress, "evaluate"),
    )
    timings = {
        "predict": predicted - started,
        "select": selected - predicted,
        "evaluate": time.perf_counter() - selected,
    }
    notes = _notes(len(chosen), len(held_out), len(dataset.classes), settings, dataset)
    notes += () if model.note is None else (model.note,)
    plain = next((row for row, c in enumerate(candidates) if pool[c].is_plain), first)
    chance = chance_note(log_probs[plain], dataset.labels[chosen])
    notes += () if chance is None else (chance,)
    return PolicySearch(policy, pool, trace, comparison, chosen, held_out, timings, notes, raced)


def _predicted(
    predictor: Predictor,
    dataset: Dataset,
    chosen: NDArray[np.int64],
    pool: Sequence[SubPolicy],
    settings: SearchSettings,
    directory: RunDirectory | None,
    progress: Callable[[int, int], None] | None,
) -> tuple[NDArray[np.int64], NDArray[np.float32], Mapping[str, Any] | None]:
    """Return which candidates to select from, their predictions, and a race's record."""

    def predict(
        which: NDArray[np.int64],
        places: NDArray[np.int64],
        store: str,
        report: Callable[[int, int], None] | None,
    ) -> NDArray[np.float32]:
        return predict_views(
            predictor,
            dataset.images[places],
            [View(pool[index], int(index)) for index in which],
            seed=settings.seed,
            indices=places,
            batch=settings.batch,
            store_path=None if directory is None else directory.path / store,
            progress=report,
        )

    everyone = np.arange(len(pool))
    if not settings.race:
        return everyone, predict(everyone, chosen, "predictions.zarr", progress), None
    result = run_race(
        lambda name, which, images, report: predict(
            which, chosen[images], f"race-{name}.zarr", report
        ),
        dataset.labels[chosen],
        len(pool),
        settings.length,
        objective=settings.objective,
        balanced=settings.balanced,
        seed=settings.seed,
        progress=progress,
    )
    return result.survivors, result.log_probs, result.to_json()


def _dataset(
    name: str,
    images: Tensor | NDArray[np.uint8],
    labels: ArrayLike,
    classes: Sequence[str] | None,
    groups: ArrayLike | None,
) -> Dataset:
    if isinstance(images, np.ndarray):
        images = torch.from_numpy(images)
    numbers = np.asarray(labels)
    if classes is None and numbers.size and numbers.dtype.kind in "iu":
        classes = [str(number) for number in range(max(2, int(numbers.max()) + 1))]
    return Dataset(
        images,
        numbers,
        tuple(classes or ()),
        name,
        groups=None if groups is None else np.asarray(groups),
    )


def _stage(progress: Progress | None, stage: str) -> Callable[[int, int], None] | None:
    if progress is None:
        return None
    return lambda done, total: progress(stage, done, total)


def _notes(
    searched: int, held_out: int, classes: int, settings: SearchSettings, dataset: Dataset
) -> tuple[str, ...]:
    notes = []
    for count, what, means in (
        (
            searched,
            "to search with",
            "the search can fit their noise, so believe only the "
            "held-out figures, and prefer a short policy",
        ),
        (held_out, "held out", "the intervals will be wide and a small gain cannot be shown"),
    ):
        if count < max(FEW_IMAGES, classes):
            notes.append(f"only {count} images {what} ({classes} classes): {means}")
    size, meant = min(dataset.images.shape[2:]), settings.recipe.image_size
    if meant is not None and not meant / 2 <= size <= meant * 2:
        notes.append(
            f"the recipe {settings.recipe.name!r} is meant for images of about {meant} pixels, "
            f"these have {size}: see  relook search --help  for the recipes"
        )
    return tuple(notes)
