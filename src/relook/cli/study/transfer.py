"""`relook study transfer`: policies on other models and data than they were found on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import progress_bar, resumable, say
from relook.cli.shared.inputs import read_budgets
from relook.cli.study import shared as study
from relook.cli.study.transfer_inputs import read_transfer, wanted_targets
from relook.evaluation.baselines import BASELINES
from relook.io.run_directory import RunDirectory
from relook.studies.transfer import METHODS, STUDY, transfer


@groups.spelled_out
def transfer_command(
    *,
    run: Annotated[
        list[Path] | None,
        typer.Option(
            help="A finished search: its model, data and policy. Give several.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            "-m",
            help="A classifier to apply the policies to, as in  relook search. Give several.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option(
            "--policy",
            "-p",
            help="The policy of each --model, in their order. With one --model, or none: policies "
            "that were found elsewhere.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            help="Labelled images: one set for all, or one for each run and model, in order.",
            show_default="those of the runs",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="What tables call the runs and models, in order.",
            show_default="from their files",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Numbers of views to compare at.")] = "5,10,20",
    methods: Annotated[
        str, typer.Option(help=f"Baselines alongside the policies, of: {','.join(BASELINES)}.")
    ] = ",".join(METHODS),
    runs: sources.RunsOption = 1,
    recipe: Annotated[
        str | None,
        typer.Option(help="Where the random crops come from; the policies' own by default."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            help="Where transfer.json, figures and predictions go.", rich_help_panel=study.FILES
        ),
    ] = Path("runs/transfer"),
    results: study.ResultOptions,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
) -> None:
    """Apply policies to other models and data than they were found on.

    A small network's policy on a large one:  relook study transfer --run runs/small --model LARGE
    """
    asked, chosen = read_budgets(budgets), options.names(methods)
    given = options.origin(
        group=group,
        **network.given(),
        **reading.given(),
    )
    wanted, foreign = wanted_targets(
        run or [], model or [], policy or [], data or [], name or [], given
    )
    inputs = read_transfer(
        wanted, foreign, recipe, device, reading.full_size, overflow=images_kept.beside(out)
    )
    record = {"command": study.command(), **inputs.record}
    with (
        RunDirectory(out),
        resumable(study.GO_ON, timeout),
        progress_bar("predicting", "views") as bar,
    ):
        found = transfer(
            inputs.targets,
            inputs.policies,
            recipe=inputs.recipe,
            budgets=asked,
            methods=chosen,
            seed=seed,
            runs=runs,
            store_path=out / "predictions",
            batch=batch,
            progress=bar,
            record=record,
        )
    most = found.settings["budgets"][-1]
    if most < max(asked):
        say(f"compared with at most {most} views: the shortest policy has no more distinct ones")
    results.show(STUDY, found, out)
