"""From a model and labelled images to a policy: pool → predictions → selection → held-out proof.

The paper's Algorithm 1, with a share of the images held out so that a gain is never claimed
on the images that it was found on.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.errors import RelookError, unknown_name
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.foundation import notebook
from relook.foundation.memory import size_text
from relook.foundation.progress import Progress, StageProgress, stage_of
from relook.io.run_directory import RunDirectory
from relook.models import Predictor, as_predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.models.describe import network_mark
from relook.numerics.arrays import Indices
from relook.policy import Policy, SubPolicy
from relook.policy_search.job import SearchJob, plan_search, search_notes
from relook.policy_search.pool_predictions import (
    Probe,
    choose_variant,
    policy_of,
    predict_pool,
    select_from_pool,
)
from relook.policy_search.run_record import as_begun, former_values, record_search
from relook.policy_search.settings import MODEL_KEYWORDS, SearchKeywords, SearchSettings
from relook.predictions.model_calls import current_engine, on_other_gpus
from relook.predictions.passes import Images
from relook.selection import SearchResult
from relook.selection.plan import SelectionPlan
from relook.selection.record import Log

if TYPE_CHECKING:
    from relook.deploy import TTA


@dataclass(frozen=True)
class PolicySearch:
    """What a search found: the policy, its trace, and how it does on held-out images.

    `pool[trace.picks[t]]` is the sub-policy that step t + 1 added. `search_indices` and
    `held_out_indices` say which images were used for what; `notes` holds what a reader of
    the figures should know; `race` the rounds and the passes of a race, if there was one;
    `selection` what the selection took; `probe` how borders and mirror images were chosen, if they
    were; `deployment` what `model()` needs besides the policy.
    """

    policy: Policy
    pool: tuple[SubPolicy, ...]
    trace: SearchResult
    comparison: Comparison
    search_indices: Indices
    held_out_indices: Indices
    timings: Mapping[str, float]
    notes: tuple[str, ...] = ()
    race: Mapping[str, Any] | None = None
    selection: SelectionPlan | None = None
    probe: Probe | None = None
    deployment: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    def model(self, *, method: str | None = None, views: int | None = None, **options: Any) -> TTA:
        """Return the searched model as one module that predicts as the verdict recommends.

        `method` ("policy", "plain", "cf" …) and `views` overrule the verdict; views alone are the
        policy's, and so is an early exit. The other `options` are TTA's.
        """
        from relook.deploy import TTA
        from relook.deploy.recommended import deployed

        if self.deployment is None:
            raise RelookError("this search does not hold its model: use relook.TTA(model, policy)")
        given = dict(self.deployment)
        if options.get("early_exit") is not None:
            method = method or "policy"
        found = deployed(self.policy, self.comparison, given.pop("recipe"), method, views)
        if found.by_verdict and not found.whole:
            warnings.warn(
                f"the model takes {found.text}, as the verdict recommends: method='policy' takes "
                "the whole policy",
                stacklevel=2,
            )
        own = {"policy": found.policy, "temperature": found.temperature}
        return TTA(**{**given, **own, **options})

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __str__(self) -> str:
        return f"{self.policy}\n{self.comparison.verdict.sentence}"


def search(
    model: object,
    images: Images,
    labels: ArrayLike,
    *,
    test: tuple[Images, ArrayLike] | None = None,
    groups: ArrayLike | None = None,
    classes: Sequence[str] | None = None,
    run: str | Path | None = None,
    progress: StageProgress | None = None,
    **keywords: Unpack[SearchKeywords],
) -> PolicySearch:
    """Learn which views of an image to average, and prove it on images held out for that.

    `images` are uint8 `[n, c, h, w]`. `model` is a torch module, an ONNX Runtime session, a
    function or a Predictor; `mean`, `std`, `device` and `outputs` are the keywords of a model.
    Images of one group stay together. With `run`, everything is kept in that directory, and the
    same call goes on where an interrupted one stopped.

    The other keywords are the fields of `SearchSettings`, and three that are read with them.
    `recipe` may be a name ("auto": by the images' size and channels), and `exclude` names
    transforms that make no sense for these images. A stratified share `holdout` (1/3) is kept for
    the proof, unless separate `test` images and labels are given; `split` says both parts
    instead: "0.5:0.5", "5000:5000", "2500:rest".

    What is searched: `strategy` ("auto", "conservative", "greedy" or "paper"), `length` (20
    entries), `pool_size` (80; for "greedy" and "paper" the recipe's own number), `draws` ("fixed"
    or "fresh"), `plain` (False leaves the plain image out of the candidates, as the paper's
    ImageNet pool does), `objective` ("cll"), `balanced`, `seed`.
    For speed: `batch` (default: by the images' size), `accelerate` ("torch", "channels-last",
    "onnx", or "auto": the fastest of them where the work is long), `precision`, `compiled`;
    `race` predicts candidates of no promise on a part of the images only. `memory` is how many
    bytes the selection may take (default: 70 % of what is free): with a `run`, predictions beyond
    it are read from disk, where they are kept in `store_precision` ("auto": float16 above 200
    classes, else float32).
    """
    known = SearchKeywords.__annotations__
    for name in keywords:
        if name not in known:
            raise unknown_name("keyword of relook.search", name, known)
    given = as_begun(run, keywords)
    model_options = {name: given.pop(name) for name in MODEL_KEYWORDS if name in given}
    split = given.pop("split", None)
    if split is not None and test is not None:
        raise RelookError("expected a split of the images or separate test images, got both")
    dataset = _dataset("images", images, labels, classes, groups)
    settings = SearchSettings.of(shape=dataset.images.shape[1:], **given)
    settings = settings.with_split(split, len(dataset))
    test_set = None if test is None else _dataset("test images", *test, dataset.classes, None)
    predictor = as_predictor(model, **model_options)
    found = search_dataset(
        predictor,
        dataset,
        settings,
        test=test_set,
        run=run,
        progress=progress,
        warn=partial(warnings.warn, stacklevel=4),
    )
    names = None if classes is None else dataset.classes
    size = tuple(dataset.images.shape[2:])
    deployment = {"model": predictor, "size": size, "classes": names, "recipe": settings.recipe}
    return replace(found, deployment=deployment)


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
    log: Log | None = None,
    warn: Log | None = None,
) -> PolicySearch:
    """Run a search as `search` does; `origin` (command, specs) is kept in the run's record.

    `store` is a path or a URL for the predictions, which are kept in the run's directory by
    default. The stages of `progress` are "probe", "predict", "map" (where predictions do not fit
    into memory), "select" and "evaluate". `log` is given lines for people, such as what the
    selection needs, and `warn` the notes, before the pool is predicted.
    """
    if store is not None and run is None:
        raise RelookError("expected a run's directory with a store of predictions, got none")
    place = None if run is None else Path(run)
    job = plan_search(predictor, dataset, settings, test=test, directory=place, store=store)
    if job.plan.mapped and log is not None:
        size = size_text(job.plan.predictions)
        log(f"predictions: {size} of disk, and as much again to map them")
    if place is None:
        return _searched(job, accelerated(job), progress, log, warn)
    with RunDirectory(place) as directory:
        record = job.record()
        directory.check_settings(record, former_values(settings))
        found = _searched(job, accelerated(job, directory.engine), progress, log, warn)
        record_search(directory, found, job, record, origin or {})
        return found


def accelerated(job: SearchJob, record: Path | None = None) -> Accelerated:
    """Return the predictor on the engine that the settings, or an earlier run, chose.

    What is fastest here says nothing about the workers of a cluster: `auto` is torch there.
    """
    settings = job.settings
    return accelerate_run(
        job.predictor,
        job.dataset.images,
        mode=settings.accelerate,
        precision=settings.precision,
        compiled=settings.compiled,
        passes=0 if current_engine() else job.passes + job.proof_passes,
        record=record,
    )


def say_engine(model: Accelerated, log: Log | None) -> None:
    """Say which engine was chosen, where it was not torch."""
    if log is not None and model.why is not None:
        log(f"engine {model.engine}: {model.why} (--accelerate to choose)")


def _searched(
    job: SearchJob,
    model: Accelerated,
    progress: StageProgress | None,
    log: Log | None,
    warn: Log | None,
) -> PolicySearch:
    fitted_on = network_mark(job.predictor)
    job = replace(job, predictor=model.predictor)
    notes = search_notes(job)
    say_engine(model, log)
    if warn is not None:
        for note in notes:
            warn(note)
    times = [time.perf_counter()]
    job, probe = choose_variant(job, progress, log)
    predicted = predict_pool(job, progress)
    times.append(time.perf_counter())
    selected = select_from_pool(job, predicted, progress, log)
    policy = replace(policy_of(job, predicted, selected), fitted_on=fitted_on)
    times.append(time.perf_counter())
    comparison = _proof(job, policy, stage_of(progress, "evaluate"))
    times.append(time.perf_counter())
    stages = ("predict", "select", "evaluate")
    trace, candidates = selected.result, predicted.candidates
    return PolicySearch(
        policy,
        job.pool.candidates,
        replace(
            trace,
            picks=tuple(int(candidates[pick]) for pick in trace.picks),
            temperatures=policy.temperatures or (),
        ),
        comparison,
        job.split.search,
        job.split.held_out,
        dict(zip(stages, np.diff(times).tolist(), strict=True)),
        notes,
        predicted.race,
        job.plan,
        probe,
    )


def _proof(job: SearchJob, policy: Policy, progress: Progress | None) -> Comparison:
    """Compare the policy with the plain image and random crops on the held-out images."""
    return compare(
        job.predictor,
        job.proof,
        policy,
        indices=job.split.held_out,
        recipe=job.settings.recipe,
        budgets=(policy.views,),
        methods=("plain", "cf"),
        seed=job.settings.seed,
        balanced=job.settings.balanced,
        batch=job.settings.batch,
        store_path=job.place("heldout.zarr"),
        measure_cost=not on_other_gpus(),
        progress=progress,
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
