"""`relook search`: learn a policy for a model and labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from relook.api.progress_bars import search_bars
from relook.api.recorded import as_recorded, next_to
from relook.cli.shared import loading, options
from relook.cli.shared.console import (
    RESUME_HINT,
    check_log,
    log_finished_run,
    print_json,
    print_text,
    resumable,
    say,
    typed_command,
)
from relook.cli.shared.option_groups import FieldsOf, expand_options, option
from relook.cli.show import print_policy
from relook.errors import RelookError, unknown_name
from relook.foundation.memory import size_text
from relook.io.run_directory import RunDirectory
from relook.models.base import input_of
from relook.models.describe import model_record
from relook.policy.file import policy_to_json
from relook.policy.recipes import AUTO
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.notes import search_notes
from relook.policy_search.rounds import no_complete_round
from relook.policy_search.search import PolicySearch, fit_to_time, search_dataset
from relook.policy_search.settings import SEARCH, RecipeChoice, SearchSettings
from relook.policy_search.time_plan import (
    TimePlan,
    TimeRequest,
    left_out_note,
)
from relook.predictions.model_calls import ENGINES, running_on
from relook.predictions.store import stored_passes
from relook.report.comparison_tables import print_comparison

_cluster_option: Callable[..., Any] = partial(option, panel="Cluster")


@dataclass(frozen=True)
class TimeOptions:
    """How long a search may take, and the plan for that time."""

    time: str | None = option(
        "How long search and comparison may take: 90s, 15m, 1h30m. If the time is short, fewer "
        "candidates and images are used.",
        metavar="TIME",
        shown="15m; none with --pool-size, --split or --holdout",
    )
    effort: str | None = options.speed_option(
        "Short for a --time of 2 minutes, 15 minutes, or an hour with a larger pool.",
        metavar="quick|normal|thorough",
    )
    plan: Path | None = options.speed_option(
        "Reuse the time plan of another run: its directory, or its plan.json.",
        metavar="RUN",
    )
    finish: bool = options.speed_option(
        "Finish an interrupted run with the candidates that are complete.",
        "--finish",
        default=False,
    )


@dataclass(frozen=True)
class EngineOptions:
    """Where the model runs, and where its predictions are stored."""

    engine: str = _cluster_option(
        "Where to run the model: local, or ray (on the workers of a Ray cluster).", default="local"
    )
    address: str | None = _cluster_option(
        "The Ray cluster that this machine belongs to: auto, or HOST:PORT.",
        shown="a Ray started here",
    )
    workers: int | None = _cluster_option(
        "Maximum number of workers; each loads its own model.", min=1, shown="as many as fit"
    )
    gpus_per_worker: float | None = _cluster_option(
        "GPUs per worker; with 0.5, two workers share one.",
        min=0.0,
        shown="1 with --device cuda, else 0",
    )
    store: str | None = _cluster_option(
        "Where to store predictions: another directory, or s3://BUCKET/PREFIX, gs://…, az://…",
        metavar="PATH|URL",
        shown="the run's directory",
    )

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        for name in ("address", "workers", "gpus_per_worker"):
            if self.is_local and getattr(self, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise RelookError(f"{flag} is for a cluster: give --engine ray too")

    @property
    def is_local(self) -> bool:
        """Whether this process runs the model."""
        return self.engine == "local"

    def predictions(self, run: Path) -> str | Path:
        """Return where the predictions of a run's candidates are stored."""
        default = RunDirectory(run).predictions
        return default if self.store is None else f"{self.store.rstrip('/')}/{default.name}"

    @contextmanager
    def started(self, device: str) -> Iterator[None]:
        """Run the model on the chosen engine within the block."""
        if self.is_local:
            yield
            return
        from relook.predictions.engines.ray import RayEngine  # Ray is heavy

        engine = RayEngine(
            self.address,
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker or 0,
            device="cpu" if device == "auto" else device,  # workers may lack this machine's GPU
            log=say,
        )
        with engine, running_on(engine):
            yield


@expand_options
def search_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    out: Path = option(
        "The run's directory; rerun the same command to resume.", default=Path("runs/search")
    ),
    recipe: options.RecipeOption = AUTO,
    exclude: str | None = options.details_option(options.EXCLUDE_HELP),
    settings: Annotated[dict[str, Any], FieldsOf(SearchSettings)],
    split: options.SplitOption = None,
    holdout: float | None = option(
        "Share of the images to hold out; the others are searched on.",
        shown="a third",
        panel=SEARCH,
    ),
    test: str | None = options.data_option("A separate test set instead of a held-out share."),
    timing: TimeOptions,
    group: options.GroupOption = None,
    reading: options.ReadingOptions,
    network: options.NewNetworkOptions,
    device: options.DeviceOption = "auto",
    reuse: bool = options.speed_option(
        "Reuse predictions of the same model from neighbouring runs; results do not change.",
        default=True,
    ),
    dry_run: options.DryRunOption = False,
    timeout: options.TimeoutOption = None,
    place: EngineOptions,
    log: options.LogOption = None,
    as_json: bool = options.details_option("Print the result as JSON.", "--json", default=False),
) -> None:
    """Learn which views to average, and show on held-out images whether they help."""
    check_log(log)
    ways = (split, holdout, test, settings["cross_fit"] or None)
    if sum(way is not None for way in ways) > 1:
        raise RelookError(
            "expected one of --split, --holdout, --test and --cross-fit, got more: give one"
        )
    given = {"recipe": recipe, **settings}
    given |= {} if holdout is None else {"holdout": holdout}
    time_request = TimeRequest.from_keywords(given | vars(timing), split)
    prior = RecipeChoice(given.pop("recipe"), loading.read_names(exclude))
    SearchSettings(prior.of((3, 32, 32))[0], **given)  # raises errors before images are loaded
    if dry_run and not place.is_local:
        raise RelookError("--dry-run measures on this machine: leave --engine out")
    stored = place.predictions(out)
    if timing.finish:  # before model and images are loaded
        passes = stored_passes(stored)
        if passes is None or not passes.views:
            raise no_complete_round(out)
    # Workers of a cluster load their own models: here it is only described.
    predictor = network.load(model, device if place.is_local else "cpu", reading)
    images = reading.resolved(data, crops=prior.crops(input_of(predictor)))
    keywords = {**images, "model": predictor, "overflow": None if dry_run else next_to(out)}
    dataset = loading.read_data(data, group, **keywords)
    test_set = None
    if test is not None:
        test_set = loading.read_data(test, loading.groups_for_test(group), like=dataset, **keywords)
    chosen, why = prior.of(dataset.images.shape[1:])
    if why is not None:
        say(f"recipe {chosen.name}: {why} (--recipe to choose)")
    search = SearchSettings(chosen, **given).with_split(split, len(dataset))
    if dry_run:
        plan = time_request.existing_plan(out)
        search = time_request.initial_settings(search, plan)
        job = plan_search(predictor, dataset, search, test=test_set, directory=out)
        _print_cost(job, time_request, plan, as_json)
        return
    origin = as_recorded(
        command=typed_command(),
        model=model[0] if len(model) == 1 else model,
        model_inputs=model_record(predictor),
        data=data,
        test=test,
        group=group,
        **network.given(),
        **images,
    )
    with (
        resumable(lambda: _resume_hint(stored, search.in_rounds and place.is_local), timeout),
        place.started(device),
        search_bars(settings["objective"]) as progress,
    ):
        found = search_dataset(
            predictor,
            dataset,
            search,
            test=test_set,
            run=out,
            store=place.store,
            progress=progress,
            origin=origin,
            log=say,
            warn=_say_note,
            time_request=time_request,
            reuse=reuse,
        )
    _print_result(found, out, as_json)
    log_finished_run(out, log)


def _resume_hint(stored: str | Path, in_rounds: bool) -> str:
    """Return how to resume, how much is stored, and whether --finish can end the run with it."""
    passes = stored_passes(stored)
    if passes is None or passes.done == passes.total:
        return RESUME_HINT
    kept = f"{passes.done:,} of {passes.total:,} passes are in complete blocks, and kept."
    if not passes.views or not in_rounds:
        return f"{RESUME_HINT} {kept}"
    finish = f"With --finish it ends with the candidates that are complete: {passes.views}."
    return f"{RESUME_HINT} {kept} {finish}"


def _say_note(note: str) -> None:
    say(f"note: {note}")


def _print_result(found: PolicySearch, out: Path, as_json: bool) -> None:
    if found.race is not None:
        say(_race_line(found.race))
    if as_json:
        print_json(_result_json(found, out))
        return
    print_policy(found.policy)
    print_comparison(found.comparison)
    say(f"written to {out}: policy.json, search.json, comparison.json, run.json")


def _race_line(race: Mapping[str, Any]) -> str:
    """Describe what a race saved."""
    passes, whole, last = race["passes"], race["full_passes"], race["rounds"][-1]
    images, left = last["images"], last["candidates"]
    if len(race["rounds"]) == 1:
        return f"race: {images:,} search images are too few for one: the whole pool was predicted"
    return (
        f"race: {passes:,} of {whole:,} model passes ({whole / passes:.1f} × fewer), "
        f"{left:,} of {whole // images:,} candidates left"
    )


def _result_json(found: PolicySearch, out: Path) -> dict[str, Any]:
    """Return the result as JSON-able data."""
    return {
        "run": str(out),
        "policy": policy_to_json(found.policy),
        "picks": list(found.trace.picks),
        "scores": list(found.trace.scores),
        "temperatures": list(found.trace.temperatures),
        "probe": None if found.probe is None else asdict(found.probe),
        "race": None if found.race is None else dict(found.race),
        "plan": None if found.time_plan is None else found.time_plan.to_json(),
        "held_out": found.comparison.to_json(),
        "notes": list(found.notes),
        "seconds": dict(found.timings),
    }


def _print_cost(
    job: SearchJob, time_request: TimeRequest, plan: TimePlan | None, as_json: bool
) -> None:
    job, model, new_plan = fit_to_time(job, time_request if plan is None else None)
    plan = plan or new_plan
    settings, searched = job.settings, len(job.split.search)
    given, job = job.predictor, replace(job, predictor=model.predictor)
    model.tell(say)
    notes = search_notes(job, given)
    for note in notes:
        _say_note(note)
    seconds, passes = job.seconds_a_pass(), job.passes
    classes = job.predictor.classes or len(job.dataset.classes)
    item_bytes = np.dtype(settings.stored_type(classes)).itemsize
    disk = classes * (item_bytes * passes.pool + 4 * (passes.probe + passes.proof))
    candidates = len(job.pool.candidates)
    cost: dict[str, Any] = {
        "recipe": settings.recipe.name,
        "engine": model.engine,
        "candidates": candidates,
        "images_to_search": searched,
        "images_held_out": len(job.split.held_out),
        "images_left_out": job.left_out,
        "model_passes": passes.all,
        "probe_passes": passes.probe,
        "seconds_a_pass": seconds,
        "estimated_seconds": passes.all * seconds,
        "disk_bytes": disk + (job.plan.predictions if job.plan.mapped else 0),
        "plan": None if plan is None else plan.to_json(),
        "selection": asdict(job.plan),
        "notes": list(notes),
    }
    if as_json:
        print_json(cost)
        return
    print_text(job.summary)
    overrun = None if plan is None else plan.overrun_note(can_split=job.can_split)
    print_text(job.time_text(seconds) if plan is None else overrun or str(plan))
    if job.left_out:
        print_text(left_out_note(job, plan, time_request))
    print_text(f"selection: {job.plan}")
    print_text(f"at most {size_text(cost['disk_bytes'])} on disk; nothing was written")
