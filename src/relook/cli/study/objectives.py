"""`relook study objectives`: the same pool searched with accuracy, LL, cLL … as the objective."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options
from relook.cli.shared.console import resumable, stage_bars
from relook.cli.shared.inputs import read_budgets
from relook.cli.study import shared as study
from relook.data import Dataset
from relook.errors import RelookError
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.numerics.splits import Shares, parse_split
from relook.policy.recipes import get_recipe
from relook.selection.objectives import OBJECTIVES
from relook.studies.objectives import OF_THE_PAPER, STUDY, objectives


@groups.spelled_out
def objectives_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    chosen: Annotated[
        str, typer.Option("--objectives", help=f"What to maximise, of: {','.join(OBJECTIVES)}.")
    ] = ",".join(OF_THE_PAPER),
    runs: Annotated[
        int, typer.Option(help="Searches with each, with other pools and splits.", min=1)
    ] = 5,
    out: Annotated[
        Path, typer.Option(help="The study's directory; the same command goes on in it.")
    ] = Path("runs/objectives"),
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    strategy: Annotated[
        str, typer.Option(help="greedy, or paper: its pools and fresh draws.")
    ] = "greedy",
    draws: Annotated[
        str,
        typer.Option(help="fixed: each candidate is one exact view; fresh: as in the paper."),
    ] = "fixed",
    length: Annotated[int, typer.Option(help="Entries of a policy.", min=1)] = 20,
    pool_size: Annotated[
        int | None, typer.Option(help="Candidates; the recipe's own number by default.", min=1)
    ] = None,
    budgets: Annotated[
        str | None,
        typer.Option(help="Numbers of views to score at: 5,10,20.", show_default="all entries"),
    ] = None,
    balanced: Annotated[
        bool, typer.Option("--balanced", help="Give each class the same weight.")
    ] = False,
    split: options.SplitOption = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="A separate test set, the same for all runs, instead of a held-out share.",
            rich_help_panel="Model and data",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What tables call the model.", show_default="its --model"),
    ] = None,
    results: study.ResultOptions,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    memory: options.MemoryOption = None,
    timeout: options.TimeoutOption = None,
) -> None:
    """Search the same pool with accuracy, LL and cLL as the objective, and score what is found."""
    study.check_draws(draws)
    if split is not None and test is not None:
        raise RelookError("expected one of --split and --test, got both: give one")
    views = get_recipe(recipe).without(options.names(exclude))
    predictor = network.load(model, device, reading)
    images: dict[str, Any] = {
        "model": predictor,
        "overflow": images_kept.beside(out),
        **reading.of(data, crops=views.start is not None),
    }
    dataset = options.read_data(data, group, **images)
    test_set = None if test is None else options.read_data(test, like=dataset, **images)
    shares = Shares(1 / 3) if split is None else parse_split(split, len(dataset))
    settings: dict[str, Any] = {
        "recipe": views,
        "length": length,
        "pool_size": pool_size,
        "draws": draws,
        "strategy": strategy,
        "balanced": balanced,
        "holdout": shares.holdout,
        "left_out": shares.left_out,
        "batch": batch,
    }
    label = name or " + ".join(model)
    record = {
        "command": study.command(),
        "model": {"spec": label, "fingerprint": predictor.fingerprint},
    }
    with (
        RunDirectory(out),
        resumable(study.GO_ON, timeout),
        stage_bars(_named) as progress,
    ):
        found = objectives(
            predictor,
            dataset,
            objectives=options.names(chosen),
            test=test_set,
            runs=runs,
            seed=seed,
            budgets=None if budgets is None else read_budgets(budgets),
            memory=options.bytes_of(memory),
            directory=out / _directory(predictor, dataset, test_set, settings),
            progress=progress,
            record=record,
            **settings,
        )
        results.show(STUDY, found.labelled(model=label), out)


def _directory(
    predictor: Predictor, dataset: Dataset, test: Dataset | None, settings: dict[str, Any]
) -> str:
    """Name where predictions go by what decides them; more runs or objectives find them."""
    mark = fingerprint(
        predictor.fingerprint,
        dataset.fingerprint,
        None if test is None else test.fingerprint,
        {**settings, "recipe": settings["recipe"].to_json(), "length": None},
    )
    return f"objectives-{mark[:8]}"


def _named(stage: str) -> tuple[str, str]:
    return stage, "steps" if "selecting" in stage else "views"
