"""`relook search`: learn a policy for a model and labelled images."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relook.api.progress_bars import search_bars
from relook.cli.shared import engine as engines
from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options
from relook.cli.shared.console import check_log, log_at_end, print_json, resumable, say
from relook.cli.show import print_policy
from relook.errors import RelookError
from relook.foundation.memory import size_text
from relook.models.base import input_of
from relook.models.describe import model_record
from relook.policy.file import policy_to_json
from relook.policy.recipes import AUTO
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.notes import search_notes
from relook.policy_search.search import PolicySearch, planned, search_dataset
from relook.policy_search.settings import SEARCH, RecipeChoice, SearchSettings
from relook.policy_search.time_plan import TimePlan, TimeWish
from relook.report.comparison_tables import print_comparison

_GO_ON = (
    "Run the same command again to go on. With --finish it ends with the candidates that are "
    "complete."
)
_HoldoutOption = Annotated[
    float | None,
    typer.Option(
        help="Share of the images that is kept for the proof; short for a --split of them all.",
        show_default="a third",
        rich_help_panel=SEARCH,
    ),
]
_TestOption = Annotated[
    str | None,
    options.of_data(help="A separate test set instead of a held-out share."),
]


@groups.spelled_out
def search_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    out: Annotated[
        Path, typer.Option(help="The run's directory; rerun the same command to resume.")
    ] = Path("runs/search"),
    recipe: options.RecipeOption = AUTO,
    exclude: options.ExcludeOption = None,
    settings: groups.SearchFields,
    split: options.SplitOption = None,
    holdout: _HoldoutOption = None,
    test: _TestOption = None,
    within: groups.TimeOptions,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "auto",
    reuse: options.ReuseOption = True,
    dry_run: options.DryRunOption = False,
    timeout: options.TimeoutOption = None,
    place: engines.EngineOptions,
    log: options.LogOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Learn which views to average, and show on held-out images whether they help."""
    check_log(log)
    _check_one_of(split, holdout, test, settings["cross_fit"] or None)
    known = {"recipe": recipe, **settings}
    known |= {} if holdout is None else {"holdout": holdout}
    wish = TimeWish.of(known | vars(within), split)
    prior = RecipeChoice(known.pop("recipe"), options.names(exclude))
    SearchSettings(prior.of((3, 32, 32))[0], **known)  # whose errors need no image
    place.check(dry_run)
    predictor = network.load(model, place.device_here(device), reading)
    images = reading.of(data, crops=prior.crops(input_of(predictor)))
    how = {**images, "model": predictor, "overflow": None if dry_run else images_kept.next_to(out)}
    dataset = options.read_data(data, group, **how)
    test_set = None
    if test is not None:
        test_set = options.read_data(test, options.group_of_test(group), like=dataset, **how)
    chosen, why = prior.of(dataset.images.shape[1:])
    if why is not None:
        say(f"recipe {chosen.name}: {why} (--recipe to choose)")
    wanted = SearchSettings(chosen, **known).with_split(split, len(dataset))
    if dry_run:
        plan = wish.known_plan(out)
        wanted = wish.settled(wanted, plan)
        job = plan_search(predictor, dataset, wanted, test=test_set, directory=out)
        _print_cost(job, wish, plan, as_json)
        return
    origin = options.origin(
        command=shlex.join(["relook", *sys.argv[1:]]),
        model=options.one_or_all(model),
        model_inputs=model_record(predictor),
        data=data,
        test=test,
        group=group,
        **network.given(),
        **options.recorded(images),
    )
    with (
        resumable(_GO_ON, timeout),
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
            wish=wish,
            reuse=reuse,
        )
    _print_result(found, out, as_json)
    log_at_end(out, log)


def _check_one_of(*parts: object) -> None:
    if sum(part is not None for part in parts) > 1:
        raise RelookError(
            "expected one of --split, --holdout, --test and --cross-fit, got more: give one"
        )


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


def _print_cost(job: SearchJob, wish: TimeWish, plan: TimePlan | None, as_json: bool) -> None:
    job, model, made = planned(job, wish if plan is None else None)
    plan = plan or made
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
    typer.echo(job.time_text(seconds) if plan is None else str(plan))
    typer.echo(f"selection: {job.plan}")
    typer.echo(f"at most {size_text(cost['disk_bytes'])} on disk; nothing was written")
