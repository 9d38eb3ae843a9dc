"""From a model and labelled images to a policy: pool → predictions → selection → comparison.

The paper's Algorithm 1, with a share of the images held out so that a gain is never claimed
on the images that it was found on.
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
from relook.evaluation.compare import compare
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
from relook.policy_search.run_record import record_search
from relook.policy_search.settings import SearchSettings
from relook.policy_search.time_plan import (
    PLANS,
    Rounds,
    TimePlan,
    TimeWish,
    has_rounds,
    what_more_buys,
)
from relook.predictions.model_calls import current_engine, on_other_gpus
from relook.predictions.passes import KnownViews
from relook.predictions.reuse import reusing
from relook.selection import SearchResult
from relook.selection.plan import SelectionPlan
from relook.selection.record import Log


@dataclass(frozen=True, repr=False)
class PolicySearch:
    """What a search found: the policy, its trace, and how it does on held-out images.

    `pool[trace.picks[t]]` is the sub-policy that step t + 1 added. `search_indices` and
    `held_out_indices` say which images were used for what; `notes` holds what a reader of
    the figures should know; `race` the rounds and the passes of a race, if there was one;
    `selection` what the selection took; `probe` how borders and mirror images were chosen, if they
    were; `time_plan` what there was time for, if that was asked; `job` is what was searched: model,
    images, settings.
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
    wish: TimeWish | None = None,
    reuse: bool = False,
) -> PolicySearch:
    """Run a search as `relook.search` does; `origin` (command, specs) is kept in the run's record.

    `store` is a path or a URL for the predictions, which are kept in the run's directory by
    default. The stages of `progress` are "probe", "predict", "map" (where predictions do not fit
    into memory), "select" and "evaluate". `log` is given lines for people, such as what the
    selection needs, and `warn` the notes, before the pool is predicted. With a `wish` the search
    is planned for the time there is, and goes in rounds. With `reuse`, passes that runs next to
    this one have made are not made again; that changes no result.
    """
    if run is None and (store is not None or (wish is not None and wish.finish)):
        raise RelookError("expected a run's directory with a store of predictions, got none")
    directory = None if run is None else RunDirectory(run)
    place, plan = None if directory is None else directory.path, None
    if wish is not None:
        plan = wish.known_plan(place)
        settings = wish.settled(settings, plan)
    job = plan_search(predictor, dataset, settings, test=test, directory=place, store=store)
    if job.plan.mapped and log is not None:
        size = size_text(job.plan.predictions)
        log(f"predictions: {size} of disk, and as much again to map them")
    with directory or nullcontext():
        begun = directory is not None and directory.settings.exists()
        if directory is not None and begun:  # before anything is measured
            directory.check_settings(job.record())
        to_plan = None if begun or plan is not None else wish
        job, model, made = planned(job, to_plan, None if directory is None else directory.engine)
        plan, record = plan or made, job.record()
        if directory is not None and not begun:
            if plan is not None:  # first: settings that follow from it are nothing without it
                PLANS.write(directory.plan, plan)
            directory.check_settings(record)
        timed = made is not None and wish is not None and wish.asked
        with reusing(place) if reuse and place is not None else nullcontext() as known:
            found = _searched(job, model, wish, plan, timed, progress, log, warn)
        if known is not None and known.passes and log is not None:
            log(str(known))
        if directory is not None:
            record_search(directory, found, job, record, origin or {})
    return found


def planned(
    job: SearchJob, wish: TimeWish | None, record: Path | None = None
) -> tuple[SearchJob, Accelerated, TimePlan | None]:
    """Return the job as there is time for, its model on an engine, and what was planned.

    The engine is as the settings say, or as an earlier run kept it in the file `record`. The speed
    is measured here; without a wish, or a time in it, nothing is planned.
    """
    elsewhere = current_engine() is not None  # what is fastest here says nothing about workers
    if elsewhere and wish is not None and wish.asked:
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
        record=record,
    )
    if wish is None or wish.seconds is None or elsewhere:
        return job, model, None
    plan = wish.plan(replace(job, predictor=model.predictor), model.engine)
    cut = plan.applied(settings, wish)
    if cut != settings:
        job = plan_search(
            job.predictor,
            job.dataset,
            cut,
            test=job.test,
            directory=job.directory,
            store=job.store,
        )
    return job, model, plan


def _searched(
    job: SearchJob,
    model: Accelerated,
    wish: TimeWish | None,
    plan: TimePlan | None,
    timed: bool,
    progress: StageProgress | None,
    log: Log | None,
    warn: Log | None,
) -> PolicySearch:
    """Predict the pool, select from it and prove what is found, on the engine's model."""
    say, note_to = (one or (lambda line: None) for one in (log, warn))
    fitted_on, searched = network_mark(job.predictor), job
    job = replace(job, predictor=model.predictor)
    say(job.summary)
    notes = search_notes(job)
    model.tell(say)
    for note in notes:
        note_to(note)
    if plan is not None:
        late = plan.too_long(with_split=job.can_split)
        if late is None:
            say(str(plan))
        else:
            note_to(late)
    elif log is not None and current_engine() is None:
        log(job.time_text(job.seconds_a_pass()))
    times = [time.perf_counter()]
    job, probe = choose_variant(job, progress, log)
    rounds = None
    if wish is not None and has_rounds(job):
        rounds = Rounds(job, wish, plan, model.engine, timed, log)
    predicted = predict_pool(job, progress, None if rounds is None else rounds.go_on)
    times.append(time.perf_counter())
    selected = select_from_pool(job, predicted, progress, log)
    if log is not None and rounds is not None and rounds.is_short and not job.plan.mapped:
        log(what_more_buys(job, predicted, selected))
    halves = search_halves(job, predicted, selected.log_probs, progress)
    policy = replace(policy_of(job, predicted, selected), fitted_on=fitted_on, halves=halves)
    times.append(time.perf_counter())
    # The images of a cross-fit's proof are those of the pool.
    known = KnownViews(job.views, selected.log_probs) if job.settings.cross_fit else None
    mistake = next((str(one) for one in notes if isinstance(one, SetUpNote)), None)
    about: dict[str, Any] = {"model": {"engine": model.engine}}
    about |= {} if mistake is None else {"set_up": mistake}
    comparison = _proof(job, policy, known, progress, about)
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
        searched,
    )


def _proof(
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
        store_path=job.place("heldout.zarr"),
        measure_cost=not on_other_gpus(),
        progress=progress,
        record=record,
        known=known,
    )
