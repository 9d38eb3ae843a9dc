"""`relook search`: learn a policy for a model and labelled images."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relook.api.progress_bars import search_bars
from relook.api.recorded import as_recorded, next_to
from relook.cli.shared import loading, options
from relook.cli.shared.console import (
    GO_ON,
    check_log,
    log_at_end,
    print_json,
    resumable,
    say,
    typed_command,
)
from relook.cli.shared.spelled_out import FieldsOf, option, spelled_out
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
from relook.policy_search.search import PolicySearch, fit_to_time, search_dataset
from relook.policy_search.settings import SEARCH, RecipeChoice, SearchSettings
from relook.policy_search.time_plan import TimePlan, TimeRequest, no_complete_round
from relook.predictions.model_calls import ENGINES, running_on
from relook.predictions.store import stored_passes
from relook.report.comparison_tables import print_comparison

_of_cluster: Callable[..., Any] = partial(option, panel="Cluster")


@dataclass(frozen=True)
class TimeOptions:
    """How long a search may take, and what was planned for that."""

    time: str | None = option(
        "How long search and comparison may take: 90s, 15m, 1h30m. Where that is short, there "
        "are fewer candidates and images.",
        metavar="TIME",
        shown="15m; none with --pool-size, --split or --holdout",
    )
    effort: str | None = options.of_speed(
        "Short for a --time of 2 minutes, 15, or an hour with a larger pool.",
        metavar="quick|normal|thorough",
    )
    plan: Path | None = options.of_speed(
        "Repeat what another run planned for its time: its directory, or its plan.json.",
        metavar="RUN",
    )
    finish: bool = options.of_speed(
        "End an interrupted run with the candidates that are complete.", "--finish", default=False
    )


@dataclass(frozen=True)
class EngineOptions:
    """Where the passes are made, and where their predictions are kept."""

    engine: str = _of_cluster(
        "Where the model runs: local, or ray: on the workers of a Ray cluster.", default="local"
    )
    address: str | None = _of_cluster(
        "The Ray cluster that this machine belongs to: auto, or HOST:PORT.",
        shown="a Ray started here",
    )
    workers: int | None = _of_cluster(
        "The most workers, each with a model of its own.", min=1, shown="as many as fit"
    )
    gpus_per_worker: float | None = _of_cluster(
        "GPUs of each worker; 0.5: two workers share one.",
        min=0.0,
        shown="1 with --device cuda, else 0",
    )
    store: str | None = _of_cluster(
        "Where predictions are kept: another directory, or s3://BUCKET/PREFIX, gs://…, az://…",
        metavar="PATH|URL",
        shown="the run's directory",
    )

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        for name in ("address", "workers", "gpus_per_worker"):
            if self.is_local and getattr(self, name) is not None:
                asked = f"--{name.replace('_', '-')}"
                raise RelookError(f"{asked} is for a cluster: give --engine ray too")

    @property
    def is_local(self) -> bool:
        """Whether this process makes the passes."""
        return self.engine == "local"

    def device_here(self, device: str) -> str:
        """Return where this process holds the model: alongside a cluster, it never runs it."""
        return device if self.is_local else "cpu"

    def check(self, dry_run: bool) -> None:
        """Raise where another option does not go with a cluster."""
        if dry_run and not self.is_local:
            raise RelookError("--dry-run measures on this machine: leave --engine out")

    def predictions(self, run: Path) -> str | Path:
        """Return where the predictions of a run's candidates are."""
        own = RunDirectory(run).predictions
        return own if self.store is None else f"{self.store.rstrip('/')}/{own.name}"

    @contextmanager
    def started(self, device: str) -> Iterator[None]:
        """Make the passes within the block where the options say."""
        if self.is_local:
            yield
            return
        from relook.predictions.engines.ray import RayEngine  # Ray is heavy

        engine = RayEngine(
            self.address,
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker or 0,
            device="cpu" if device == "auto" else device,  # what is here says nothing of workers
            log=say,
        )
        with engine, running_on(engine):
            yield


@spelled_out
def search_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    out: Path = option(
        "The run's directory; rerun the same command to resume.", default=Path("runs/search")
    ),
    recipe: options.RecipeOption = AUTO,
    exclude: options.ExcludeOption = None,
    settings: Annotated[dict[str, Any], FieldsOf(SearchSettings)],
    split: options.SplitOption = None,
    holdout: float | None = option(
        "Share of the images that is held out; short for a --split of them all.",
        shown="a third",
        panel=SEARCH,
    ),
    test: str | None = options.of_data("A separate test set instead of a held-out share."),
    within: TimeOptions,
    group: options.GroupOption = None,
    reading: options.ReadingOptions,
    network: options.NetworkOptions,
    device: options.DeviceOption = "auto",
    reuse: bool = options.of_speed(
        "Take over what runs next to this one have predicted with the same model; it changes no "
        "result.",
        default=True,
    ),
    dry_run: options.DryRunOption = False,
    timeout: options.TimeoutOption = None,
    place: EngineOptions,
    log: options.LogOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Learn which views to average, and show on held-out images whether they help."""
    check_log(log)
    ways = (split, holdout, test, settings["cross_fit"] or None)
    if sum(way is not None for way in ways) > 1:
        raise RelookError(
            "expected one of --split, --holdout, --test and --cross-fit, got more: give one"
        )
    known = {"recipe": recipe, **settings}
    known |= {} if holdout is None else {"holdout": holdout}
    time_request = TimeRequest.from_keywords(known | vars(within), split)
    prior = RecipeChoice(known.pop("recipe"), loading.names(exclude))
    SearchSettings(prior.of((3, 32, 32))[0], **known)  # whose errors need no image
    place.check(dry_run)
    stored = place.predictions(out)
    if within.finish:  # before model and images are loaded
        known_passes = stored_passes(stored)
        if known_passes is None or not known_passes.views:
            raise no_complete_round(out)
    predictor = network.load(model, place.device_here(device), reading)
    images = reading.of(data, crops=prior.crops(input_of(predictor)))
    how = {**images, "model": predictor, "overflow": None if dry_run else next_to(out)}
    dataset = loading.read_data(data, group, **how)
    test_set = None
    if test is not None:
        test_set = loading.read_data(test, loading.group_of_test(group), like=dataset, **how)
    chosen, why = prior.of(dataset.images.shape[1:])
    if why is not None:
        say(f"recipe {chosen.name}: {why} (--recipe to choose)")
    wanted = SearchSettings(chosen, **known).with_split(split, len(dataset))
    if dry_run:
        plan = time_request.existing_plan(out)
        wanted = time_request.initial_settings(wanted, plan)
        job = plan_search(predictor, dataset, wanted, test=test_set, directory=out)
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
        resumable(lambda: _how_to_go_on(stored, wanted.in_rounds and place.is_local), timeout),
        place.started(device),
        search_bars(settings["objective"]) as progress,
    ):
        found = search_dataset(
            predictor,
            dataset,
            wanted,
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
    log_at_end(out, log)


def _how_to_go_on(stored: str | Path, in_rounds: bool) -> str:
    """Say what the same command goes on with, and whether it can end with that."""
    known = stored_passes(stored)
    if known is None or known.done == known.total:
        return GO_ON
    kept = f"{GO_ON} {known.done:,} of {known.total:,} passes are in complete blocks, and kept."
    if not known.views or not in_rounds:
        return kept
    return f"{kept} With --finish it ends with the candidates that are complete: {known.views}."


def _say_note(note: str) -> None:
    say(f"note: {note}")


def _print_result(found: PolicySearch, out: Path, as_json: bool) -> None:
    if found.race is not None:
        say(_race_line(found.race))
    if as_json:
        print_json(result_json(found, out))
        return
    print_policy(found.policy)
    print_comparison(found.comparison)
    say(f"written to {out}: policy.json, search.json, comparison.json, run.json")


def _race_line(race: Mapping[str, Any]) -> str:
    """Say what a race saved."""
    passes, whole, last = race["passes"], race["full_passes"], race["rounds"][-1]
    images, left = last["images"], last["candidates"]
    if len(race["rounds"]) == 1:
        return f"race: {images:,} search images are too few for one: the whole pool was predicted"
    return (
        f"race: {passes:,} of {whole:,} model passes ({whole / passes:.1f} × fewer), "
        f"{left:,} of {whole // images:,} candidates left"
    )


def result_json(found: PolicySearch, out: Path) -> dict[str, Any]:
    """Return everything that the command prints, as JSON-able data."""
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
    job = replace(job, predictor=model.predictor)
    model.tell(say)
    notes = search_notes(job)
    for note in notes:
        _say_note(note)
    seconds, passes = job.seconds_a_pass(), job.passes
    classes = job.predictor.classes or len(job.dataset.classes)
    kept = np.dtype(settings.stored_type(classes)).itemsize
    disk = classes * (kept * passes.pool + 4 * (passes.probe + passes.proof))
    candidates = len(job.pool.candidates)
    cost: dict[str, Any] = {
        "recipe": settings.recipe.name,
        "engine": model.engine,
        "candidates": candidates,
        "images_to_search": searched,
        "images_held_out": len(job.split.held_out),
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
    typer.echo(job.summary)
    overrun = None if plan is None else plan.overrun_note(can_split=job.can_split)
    typer.echo(job.time_text(seconds) if plan is None else overrun or str(plan))
    typer.echo(f"selection: {job.plan}")
    typer.echo(f"at most {size_text(cost['disk_bytes'])} on disk; nothing was written")
