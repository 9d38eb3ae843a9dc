"""`relook search`: learn a policy for a model and labelled images."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from relook.cli import engine as engines
from relook.cli import full_size as images_kept
from relook.cli import groups, options
from relook.cli.console import print_json, resumable, say, stage_bars
from relook.cli.show import print_policy
from relook.data import Dataset
from relook.errors import RelookError
from relook.foundation import wording
from relook.foundation.memory import size_text
from relook.foundation.progress import StageProgress
from relook.models import Predictor
from relook.models.describe import model_record
from relook.numerics.splits import parse_split
from relook.policy.file import policy_to_json
from relook.policy.recipes import get_recipe
from relook.policy_search.pool_predictions import kept_in_race, precision_of
from relook.policy_search.search import (
    PolicySearch,
    accelerated,
    expected_plan,
    pool_of,
    search_dataset,
    split_images,
)
from relook.policy_search.settings import SearchSettings
from relook.predictions.passes import View, estimate
from relook.report.comparison_tables import print_comparison
from relook.selection.racing import most_passes

STAGES = {
    "predict": ("predicting the pool", "views"),
    "map": ("copying predictions to be mapped", "views"),
    "select": ("selecting", "steps"),
    "evaluate": ("predicting held-out images", "views"),
    "compare": ("predicting for the baselines", "views"),
}


@groups.spelled_out
def search_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    out: Annotated[
        Path, typer.Option(help="The run's directory; the same command goes on in it.")
    ] = Path("runs/search"),
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    strategy: Annotated[
        str,
        typer.Option(
            help="steady: evenly spread crops unless others prove better; greedy: the best "
            "candidate at each step; paper: its pools and fresh draws; auto: steady, or greedy "
            "where another objective, fresh draws or no plain image is asked for."
        ),
    ] = "auto",
    draws: Annotated[
        str,
        typer.Option(
            help="fixed: each candidate is one exact view, drawn with the pool; fresh: signs, "
            "places and flips are drawn for each image, as in the paper."
        ),
    ] = "fixed",
    length: Annotated[int, typer.Option(help="Entries of the policy.", min=1)] = 20,
    pool_size: Annotated[
        int | None, typer.Option(help="Candidates; the recipe's own number by default.", min=1)
    ] = None,
    plain: Annotated[
        bool,
        typer.Option(
            "--plain/--no-plain",
            help="Have the plain image among the candidates; the paper's ImageNet pool has not.",
        ),
    ] = True,
    objective: Annotated[
        str, typer.Option(help="What to maximise: cll, ll, accuracy, brier or ece.")
    ] = "cll",
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give each class the same weight.")
    ] = False,
    split: options.SplitOption = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Share of the images that is kept for the proof; short for a --split of them all.",
            show_default="a third",
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="A separate test set instead of a held-out share.",
            rich_help_panel="Model and data",
        ),
    ] = None,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    accelerate: options.AccelerateOption = "torch",
    precision: options.PrecisionOption = "auto",
    compiled: options.CompileOption = False,
    race: options.RaceOption = False,
    memory: options.MemoryOption = None,
    store_precision: options.StorePrecisionOption = "auto",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Tell what it would cost; write nothing.")
    ] = False,
    timeout: options.TimeoutOption = None,
    place: engines.EngineOptions,
    as_json: options.JsonOption = False,
) -> None:
    """Learn which views to average, and show on held-out images whether they help."""
    if draws not in ("fixed", "fresh"):
        raise RelookError(f"--draws: expected fixed or fresh, got {draws!r}")
    if sum(option is not None for option in (split, holdout, test)) > 1:
        raise RelookError("expected one of --split, --holdout and --test, got more: give one")
    settings = SearchSettings(
        recipe=get_recipe(recipe).without(options.names(exclude)),
        length=length,
        pool_size=pool_size,
        seed=seed,
        draws=draws,  # type: ignore[arg-type]  # checked above
        objective=objective,
        balanced=balanced,
        holdout=1 / 3 if holdout is None else holdout,
        batch=batch,
        plain=plain,
        strategy=strategy,
        accelerate=accelerate,
        precision=precision,
        compiled=compiled,
        race=race,
        memory=options.bytes_of(memory),
        store_precision=store_precision,
    )
    place.check(device=device, accelerate=accelerate, dry_run=dry_run)
    predictor = network.load(model, place.device_here(device), reading)
    images = reading.of(data, crops=settings.recipe.start is not None)
    overflow = None if dry_run else images_kept.beside(out)
    dataset = options.read_data(data, group, model=predictor, overflow=overflow, **images)
    test_set = None
    if test is not None:
        test_set = options.read_data(
            test, model=predictor, like=dataset, overflow=overflow, **images
        )
    if split is not None:
        shares = parse_split(split, len(dataset))
        settings = replace(settings, holdout=shares.holdout, left_out=shares.left_out)
    if dry_run:
        _tell_cost(predictor, dataset, settings, test_set, as_json)
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
        resumable("Run the same command again to go on.", timeout),
        place.started(device),
        search_bars(objective) as progress,
    ):
        found = search_dataset(
            predictor,
            dataset,
            settings,
            test=test_set,
            run=out,
            store=place.store,
            progress=progress,
            origin=origin,
            tell=say,
        )
    _print_result(found, out, as_json)


def search_bars(objective: str = "cll") -> AbstractContextManager[StageProgress]:
    """Show one progress bar per stage of a search."""
    return stage_bars(STAGES.__getitem__, objective)


def _print_result(found: PolicySearch, out: Path, as_json: bool) -> None:
    for note in found.notes:
        say(f"note: {note}")
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
        "race": None if found.race is None else dict(found.race),
        "held_out": found.comparison.to_json(),
        "notes": list(found.notes),
        "seconds": dict(found.timings),
    }


def _tell_cost(
    predictor: Predictor,
    dataset: Dataset,
    settings: SearchSettings,
    test: Dataset | None,
    as_json: bool,
) -> None:
    chosen, held_out = split_images(dataset, settings, test)
    pool = pool_of(settings)
    views = [View(sub, index) for index, sub in enumerate(pool)]
    model = accelerated(predictor, dataset, settings).predictor
    seconds = estimate(
        model, dataset.images[chosen], views, seed=settings.seed, batch=settings.batch
    )
    # Held out: the plain image, as many random crops as the policy has views, and those views.
    searched = len(pool) * len(chosen)
    if settings.race:
        kept = kept_in_race(settings)
        searched = most_passes(len(chosen), len(pool), settings.length, kept)
    passes = searched + (2 * settings.length + 1) * len(held_out)
    plan = expected_plan(predictor, dataset, settings, test)
    classes = predictor.classes or len(dataset.classes)
    kept = np.dtype(precision_of(settings, classes)).itemsize
    disk = classes * (kept * searched + 4 * (passes - searched))
    cost: dict[str, Any] = {
        "candidates": len(pool),
        "images_to_search": len(chosen),
        "images_held_out": len(held_out),
        "model_passes": passes,
        "seconds_a_pass": seconds,
        "estimated_seconds": passes * seconds,
        "disk_bytes": disk + (plan.predictions if plan.mapped else 0),
        "selection": asdict(plan),
    }
    if as_json:
        print_json(cost)
        return
    typer.echo(
        f"{len(pool):,} candidates × {len(chosen):,} images, then {len(held_out):,} held-out "
        f"images: {passes:,} model passes at most"
    )
    typer.echo(
        f"about {wording.duration(passes * seconds)} at {1 / seconds:,.0f} views/s, measured now"
    )
    typer.echo(f"selection: {plan}")
    typer.echo(f"at most {size_text(cost['disk_bytes'])} on disk; nothing was written")
