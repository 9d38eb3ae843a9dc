"""`relook study transfer`: policies on other models and data than they were found on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import say
from relook.cli.shared.inputs import read_budgets
from relook.cli.study import shared as study
from relook.cli.study.transfer_inputs import read_transfer, wanted_targets
from relook.studies.transfer import METHODS, STUDY, transfer

_METHODS = ",".join(METHODS)


@groups.spelled_out
def transfer_command(
    *,
    policies: study.RunsAndPolicies,
    model: Annotated[
        list[str] | None,
        options.of_model(
            "--model",
            "-m",
            help="A classifier to apply the policies to, as in  relook search. Give several, each "
            "with its policy file, in the same order; with one, or none, policy files are of "
            "other models.",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        options.of_model(
            "--data",
            "-d",
            help="Labelled images: one set for all, or one for each run and model, in order.",
            show_default="those of the runs",
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        options.of_model(
            help="What tables call the runs and models, in order.", show_default="from their files"
        ),
    ] = None,
    budgets: study.BudgetsOption = "5,10,20",
    methods: study.MethodsOption = _METHODS,
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
    reading: groups.InputOptions,
    work: study.WorkOptions,
) -> None:
    """Apply policies to other models and data than they were found on.

    A small network's policy on a large one:  relook study transfer runs/small --model LARGE
    """
    asked, chosen = read_budgets(budgets), options.names(methods)
    wanted, foreign = wanted_targets(
        policies.runs, model or [], policies.policies, data or [], name or [], reading.given()
    )
    inputs = read_transfer(
        wanted,
        foreign,
        recipe,
        reading.device,
        reading.reading.full_size,
        overflow=images_kept.next_to(out),
    )
    with work.within(out) as bar:
        found = transfer(
            inputs.targets,
            inputs.policies,
            recipe=inputs.recipe,
            budgets=asked,
            methods=chosen,
            seed=work.seed,
            runs=runs,
            store_path=out / "predictions",
            batch=work.batch,
            progress=bar,
            record={"command": study.command(), **inputs.record},
        )
    most = found.settings["budgets"][-1]
    if most < max(asked):
        say(f"compared with at most {most} views: the shortest policy has no more distinct ones")
    results.show(STUDY, found, out)
