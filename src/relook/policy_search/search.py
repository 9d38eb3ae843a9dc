"""From a model and labelled images to a policy: pool → predictions → selection → held-out proof.

The paper's Algorithm 1, with a share of the images held out so that a gain is never claimed
on the images that it was found on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from relook.data.base import Dataset
from relook.data.class_map import chance_note
from relook.errors import RelookError
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.foundation import notebook
from relook.foundation.memory import size_text
from relook.foundation.progress import StageProgress, stage_of
from relook.io.run_directory import RunDirectory
from relook.models import Predictor, as_predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.numerics.splits import Shares, parse_split, search_split
from relook.policy import DrawKind, Policy, SubPolicy
from relook.policy.pool import conservative_pool, sample_pool
from relook.policy.recipes import Recipe, get_recipe
from relook.policy_search.pool_predictions import PoolJob, plan_pool, predict_pool, select_from_pool
from relook.policy_search.preflight import check_search, search_notes
from relook.policy_search.run_record import record_search, settings_record
from relook.policy_search.settings import SearchSettings
from relook.predictions.engines.base import on_other_gpus
from relook.predictions.passes import Images
from relook.selection import SearchResult
from relook.selection.objectives import UserObjective
from relook.selection.plan import SelectionPlan
from relook.selection.record import TRACE

if TYPE_CHECKING:
    from relook.deploy import TTA


@dataclass(frozen=True)
class PolicySearch:
    """What a search found: the policy, its trace, and how it does on held-out images.

    `pool[trace.picks[t]]` is the sub-policy that step t + 1 added. `search_indices` and
    `held_out_indices` say which images were used for what; `notes` holds what a reader of
    the figures should know; `race` the rounds and the passes of a race, if there was one;
    `selection` what the selection took; `deployment` what `model()` needs beside the policy.
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
    selection: SelectionPlan | None = None
    deployment: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def model(self, **options: Any) -> TTA:
        """Return the searched model with its policy as one module; `options` are TTA's."""
        from relook.deploy import TTA

        if self.deployment is None:
            raise RelookError("this search does not hold its model: use relook.TTA(model, policy)")
        return TTA(policy=self.policy, **{**self.deployment, **options})

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __str__(self) -> str:
        return f"{self.policy}\n{self.comparison.verdict.sentence}"


def search(
    model: object,
    images: Images,
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
    split: str | None = None,
    test: tuple[Images, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    batch: int | None = None,
    plain: bool = True,
    accelerate: str = "torch",
    precision: str = "auto",
    compiled: bool = False,
    race: bool = False,
    strategy: str = "auto",
    store_precision: str = "auto",
    memory: int | None = None,
    run: str | Path | None = None,
    progress: StageProgress | None = None,
    **model_options: Any,
) -> PolicySearch:
    """Learn which views of an image to average, and prove it on images held out for that.

    `images` are uint8 `[n, c, h, w]`. `model` is a torch module, an ONNX Runtime session, a
    function or a Predictor; `model_options` are its `mean`, `std`, `device`, `outputs`. A
    stratified share `holdout` of the images is kept for the proof, unless separate `test`
    images and labels are given;
    `split` says both parts instead: "0.5:0.5", "5000:5000", "2500:rest". Images of one group
    stay together. `plain=False` leaves the plain image out of the
    candidates, as the paper's ImageNet pool does. `batch` (default: by the images' size),
    `accelerate` ("auto", "torch", "channels-last" or "onnx"), `precision` and `compiled` are
    for speed; `race` predicts candidates of no promise on a part of the images only;
    `strategy` is "auto", "steady", "greedy" or "paper" (see `SearchSettings`). With
    `run`, everything is kept in that directory, and the same call goes on where an
    interrupted one stopped. `memory` is how many bytes the selection may take (default: 70 %
    of what is free): with a `run`, predictions beyond it are read from disk, where they are
    kept in `store_precision` ("auto": float16 above 200 classes, else float32).
    """
    dataset = _dataset("images", images, labels, classes, groups)
    if split is not None and test is not None:
        raise RelookError("expected a split of the images or separate test images, got both")
    shares = Shares(holdout) if split is None else parse_split(split, len(dataset))
    settings = SearchSettings(
        recipe=get_recipe(recipe).without(exclude),
        length=length,
        pool_size=pool_size,
        seed=seed,
        draws=draws,
        objective=objective,
        balanced=balanced,
        holdout=shares.holdout,
        left_out=shares.left_out,
        batch=batch,
        plain=plain,
        accelerate=accelerate,
        precision=precision,
        compiled=compiled,
        race=race,
        strategy=strategy,
        store_precision=store_precision,
        memory=memory,
    )
    test_set = None if test is None else _dataset("test images", *test, dataset.classes, None)
    predictor = as_predictor(model, **model_options)
    found = search_dataset(predictor, dataset, settings, test=test_set, run=run, progress=progress)
    for note in found.notes:
        warnings.warn(note, stacklevel=2)
    names = None if classes is None else dataset.classes
    size = tuple(dataset.images.shape[2:])
    return replace(found, deployment={"model": predictor, "size": size, "classes": names})


def search_dataset(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    *,
    test: Dataset | None = None,
    run: str | Path | None = None,
    store: str | None = None,
    progress: StageProgress | None = None,
    origin: Mapping[str, Any] | None = None,
    tell: Callable[[str], None] | None = None,
) -> PolicySearch:
    """Run a search as `search` does; `origin` (command, specs) is kept in the run's record.

    `store` is a path or a URL for the predictions, which are kept in the run's directory by
    default. `tell` is given lines for people, such as what the selection needs.
    """
    if store is not None and run is None:
        raise RelookError("expected a run's directory with a store of predictions, got none")
    if settings.length < 1:
        raise RelookError(f"expected a policy length of at least 1, got {settings.length}")
    _, held_out = split_images(dataset, settings, test)
    check_search(predictor, dataset, test, held_out, settings.objective)
    if run is None or not (Path(run) / TRACE).exists():
        plan = expected_plan(predictor, dataset, settings, test, on_disk=run is not None)
        if plan.mapped and tell is not None:
            tell(
                f"predictions: {size_text(plan.predictions)} of disk, and as much again to map them"
            )
    if run is None:
        fast = accelerated(predictor, dataset, settings)
        return _search(fast, dataset, settings, test, None, None, progress, tell)
    with RunDirectory(run) as directory:
        directory.check_settings(settings_record(predictor, dataset, settings, test))
        fast = accelerated(predictor, dataset, settings, directory)
        found = _search(fast, dataset, settings, test, directory, store, progress, tell)
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
        record=None if directory is None else directory.engine,
    )


def split_images(
    dataset: Dataset, settings: SearchSettings, test: Dataset | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which images the search sees and which are held out (all of `test` if given)."""
    if test is not None:
        return np.arange(len(dataset.labels)), np.arange(len(test.labels))
    return search_split(
        dataset.labels, settings.holdout, settings.left_out, settings.seed, dataset.groups
    )


def pool_of(settings: SearchSettings) -> tuple[SubPolicy, ...]:
    """Return the candidates of a search."""
    if settings.strategy == "steady":
        spread, rest = conservative_pool(settings.recipe, settings.pool_size, settings.seed)
        return spread + rest
    return sample_pool(
        settings.recipe,
        settings.pool_size,
        settings.seed,
        draws=settings.draws,
        plain=settings.plain,
    )


def expected_plan(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    test: Dataset | None = None,
    *,
    on_disk: bool = True,
) -> SelectionPlan:
    """Return what the selection will take; raise now what hours of predicting later would."""
    images, candidates = len(split_images(dataset, settings, test)[0]), len(pool_of(settings))
    classes = predictor.classes or len(dataset.classes)
    return plan_pool(settings, (candidates, images, classes), on_disk=on_disk)


def _search(
    model: Accelerated,
    dataset: Dataset,
    settings: SearchSettings,
    test: Dataset | None,
    directory: RunDirectory | None,
    store: str | None,
    progress: StageProgress | None,
    tell: Callable[[str], None] | None,
) -> PolicySearch:
    predictor = model.predictor
    chosen, held_out = split_images(dataset, settings, test)
    pool = pool_of(settings)
    started = time.perf_counter()
    where = None if directory is None else directory.path
    job = PoolJob(predictor, dataset, chosen, pool, settings, where, store)
    predicted = predict_pool(job, stage_of(progress, "predict"), stage_of(progress, "map"))
    predicting = time.perf_counter()
    selected = select_from_pool(job, predicted, progress, tell)
    trace, candidates = selected.result, predicted.candidates
    first = trace.picks[0]
    trace = replace(trace, picks=tuple(int(candidates[pick]) for pick in trace.picks))
    policy = Policy(
        tuple(pool[pick] for pick in trace.picks),
        temperatures=trace.temperatures,
        recipe=settings.recipe.name,
        seed=settings.seed,
    )
    selecting = time.perf_counter()
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
        store_path=job.place("heldout.zarr"),
        measure_cost=not on_other_gpus(),
        progress=stage_of(progress, "evaluate"),
    )
    timings = {
        "predict": predicting - started,
        "select": selecting - predicting,
        "evaluate": time.perf_counter() - selecting,
    }
    notes = search_notes(len(chosen), len(held_out), dataset, settings.recipe)
    notes += () if model.note is None else (model.note,)
    plain = next((row for row, c in enumerate(candidates) if pool[c].is_plain), first)
    chance = chance_note(selected.log_probs[plain], dataset.labels[chosen])
    notes += () if chance is None else (chance,)
    return PolicySearch(
        policy,
        pool,
        trace,
        comparison,
        chosen,
        held_out,
        timings,
        notes,
        predicted.race,
        selected.plan,
    )


def _dataset(
    name: str,
    images: Images,
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
