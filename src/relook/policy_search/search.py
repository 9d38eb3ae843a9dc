"""From a model and labelled images to a policy: pool → predictions → selection → comparison.

The paper's Algorithm 1, with a share of the images held out, so that a gain is never measured on
the images that it was found on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.compare import LEFT_OUT, compare
from relook.evaluation.comparison import Comparison
from relook.foundation import notebook
from relook.foundation.memory import size_text
from relook.foundation.progress import StageProgress
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.models.accelerate import Accelerated, accelerate_run
from relook.models.describe import network_mark
from relook.numerics.arrays import Indices
from relook.policy import Policy, SubPolicy
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.notes import SetUpNote, search_notes
from relook.policy_search.pool_predictions import (
    Probe,
    choose_variant,
    policy_of,
    predict_pool,
    search_halves,
    select_from_pool,
)
from relook.policy_search.rounds import Rounds, can_have_rounds, what_more_time_buys
from relook.policy_search.run_record import record_search
from relook.policy_search.settings import SearchSettings
from relook.policy_search.time_plan import (
    PLANS,
    TimePlan,
    TimeRequest,
    left_out_note,
)
from relook.predictions.model_calls import current_engine, on_other_gpus
from relook.predictions.passes import KnownViews
from relook.predictions.reuse import reusing
from relook.selection import SearchResult
from relook.selection.plan import SelectionPlan
from relook.selection.record import Log


@dataclass(frozen=True, repr=False)
class PolicySearch:
    """The result of a search: the policy, its trace, and its comparison on held-out images.

    `pool[trace.picks[t]]` is the sub-policy that step t + 1 added. `search_indices` and
    `held_out_indices` are the images used for each; `notes` are warnings for readers of the
    figures; `race` is the record of a race, if there was one; `selection` the memory that the
    selection took; `probe` the choice of borders and mirror images, if there was one; `time_plan`
    the sizes planned for a time limit, if there was one; `job` the model, images and settings.
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
    time_plan: TimePlan | None = None
    job: SearchJob | None = field(default=None, compare=False)

    def _repr_html_(self) -> str:
        return notebook.html(self)

    def __repr__(self) -> str:
        return notebook.text(self)


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
    time_request: TimeRequest | None = None,
    reuse: bool = False,
) -> PolicySearch:
    """Run a search as `relook.search` does; `origin` (command, specs) is kept in the run's record.

    `store` is a path or a URL for the predictions (default: in the run's directory). The stages of
    `progress` are "probe", "predict", "map" (if predictions do not fit into memory), "select" and
    "evaluate". `log` is called with lines for people, `warn` with notes before the pool is
    predicted. A `time_request` fits the search into a time limit, in rounds. With `reuse`,
    predictions are taken from runs next to this one, which changes no result.
    """
    if run is None and (store is not None or (time_request is not None and time_request.finish)):
        raise RelookError("expected a run's directory with a store of predictions, got none")
    directory = None if run is None else RunDirectory(run)
    path = None if directory is None else directory.path
    plan = None
    if time_request is not None:
        plan = time_request.existing_plan(path)
        settings = time_request.initial_settings(settings, plan)
    job = plan_search(predictor, dataset, settings, test=test, directory=path, store=store)
    if job.plan.mapped and log is not None:
        size = size_text(job.plan.predictions)
        log(f"predictions: {size} of disk, and as much again to map them")
    with directory or nullcontext():
        begun = directory is not None and directory.settings.exists()
        if directory is not None and begun:  # before anything is measured
            directory.check_settings(job.record())
        is_planned = begun or plan is not None
        engine_file = None if directory is None else directory.engine
        job, model, new_plan = fit_to_time(job, None if is_planned else time_request, engine_file)
        plan, record = plan or new_plan, job.record()
        if directory is not None and not begun:
            if plan is not None:  # before the settings, which follow from it
                PLANS.write(directory.plan, plan)
            directory.check_settings(record)
        timed = new_plan is not None and time_request is not None and time_request.explicit
        with reusing(path) if reuse and path is not None else nullcontext() as reused:
            found = _run_search(job, model, time_request, plan, timed, progress, log, warn)
        if reused is not None and reused.passes and log is not None:
            log(str(reused))
        if directory is not None:
            record_search(directory, found, job, record, origin or {})
    return found


def fit_to_time(
    job: SearchJob, time_request: TimeRequest | None, engine_file: Path | None = None
) -> tuple[SearchJob, Accelerated, TimePlan | None]:
    """Return the job cut down to the time available, its model on an engine, and the plan.

    The engine is the settings', or the one that an earlier run kept in `engine_file`. Without a
    time limit there is no plan; with one, the speed is measured here.
    """
    elsewhere = current_engine() is not None  # this machine's speed says nothing about workers
    if elsewhere and time_request is not None and time_request.explicit:
        raise RelookError(
            "time and effort measure the speed of this machine, got an engine: give "
            "pool_size (--pool-size) and split instead"
        )
    settings = job.settings
    model = accelerate_run(
        job.predictor,
        job.dataset.images,
        mode=settings.accelerate,
        precision=settings.precision,
        compiled=settings.compiled,
        passes=0 if elsewhere else job.passes.pool + job.passes.proof,
        record=engine_file,
    )
    if time_request is None or time_request.seconds is None or elsewhere:
        return job, model, None
    plan = time_request.make_plan(replace(job, predictor=model.predictor), model.engine)
    smaller = plan.apply(settings, time_request)
    if smaller != settings:
        job = plan_search(
            job.predictor,
            job.dataset,
            smaller,
            test=job.test,
            directory=job.directory,
            store=job.store,
        )
    return job, model, plan


def _run_search(
    job: SearchJob,
    model: Accelerated,
    time_request: TimeRequest | None,
    plan: TimePlan | None,
    timed: bool,
    progress: StageProgress | None,
    log: Log | None,
    warn: Log | None,
) -> PolicySearch:
    """Predict the pool, select a policy and compare it, with the model on its engine."""
    say, say_note = (print_line or (lambda line: None) for print_line in (log, warn))
    fitted_on, given_job = network_mark(job.predictor), job
    job = replace(job, predictor=model.predictor)
    say(job.summary)
    notes = search_notes(job, given_job.predictor)
    model.tell(say)
    for note in notes:
        say_note(note)
    if plan is not None:
        overrun = plan.overrun_note(can_split=job.can_split)
        if overrun is None:
            say(str(plan))
        else:
            say_note(overrun)
    elif log is not None and current_engine() is None:
        log(job.time_text(job.seconds_a_pass()))
    if job.left_out:
        say(left_out_note(job, plan, time_request))
    times = [time.perf_counter()]
    job, probe = choose_variant(job, progress, log)
    rounds = None
    if time_request is not None and can_have_rounds(job):
        rounds = Rounds(job, time_request, plan, model.engine, timed, log)
    predicted = predict_pool(job, progress, None if rounds is None else rounds.has_next)
    times.append(time.perf_counter())
    selected = select_from_pool(job, predicted, progress, log)
    if log is not None and rounds is not None and rounds.are_limited and not job.plan.mapped:
        log(what_more_time_buys(job, predicted, selected, rounds.images_left_out))
    halves = search_halves(job, predicted, selected.log_probs, progress)
    policy = replace(policy_of(job, predicted, selected), fitted_on=fitted_on, halves=halves)
    times.append(time.perf_counter())
    # A cross-fit compares on the images that the pool was predicted on.
    known = KnownViews(job.views, selected.log_probs) if job.settings.cross_fit else None
    mistake = next((str(note) for note in notes if isinstance(note, SetUpNote)), None)
    record: dict[str, Any] = {"model": {"engine": model.engine}}
    record |= {} if mistake is None else {"set_up": mistake}
    record |= {LEFT_OUT: job.left_out} if job.left_out else {}
    comparison = _compare_on_held_out(job, policy, known, progress, record)
    times.append(time.perf_counter())
    picks = tuple(int(predicted.candidates[pick]) for pick in selected.result.picks)
    trace = replace(selected.result, picks=picks, temperatures=policy.temperatures or ())
    stages = ("predict", "select", "evaluate")
    return PolicySearch(
        policy,
        job.pool.candidates,
        trace,
        comparison,
        job.split.search,
        job.split.held_out,
        dict(zip(stages, np.diff(times).tolist(), strict=True)),
        notes,
        predicted.race,
        job.plan,
        probe,
        plan if rounds is None else rounds.plan,
        given_job,
    )


def _compare_on_held_out(
    job: SearchJob,
    policy: Policy,
    known: KnownViews | None,
    progress: StageProgress | None,
    record: Mapping[str, Any],
) -> Comparison:
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
        store_path=job.store_path("heldout.zarr"),
        measure_cost=not on_other_gpus(),
        progress=progress,
        record=record,
        known=known,
    )
