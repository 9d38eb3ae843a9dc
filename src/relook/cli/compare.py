"""`relook compare`: a policy beside every baseline, on images that it was not searched on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import console, print_json, progress_bar, resumable, say
from relook.cli.shared.inputs import Inputs, read_budgets, read_inputs
from relook.evaluation.baselines import BASELINES, Options
from relook.evaluation.compare import compare, save_comparison
from relook.evaluation.comparison import Comparison, Row
from relook.evaluation.verdict import MARGIN, pick
from relook.foundation.wording import views_text
from relook.io.files import write_text_atomic
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.policy.file import policy_to_json
from relook.report.comparison_tables import comparison_table, frontier_table, to_csv, to_latex
from relook.report.tables import terminal

_FILES = "Results"


@groups.spelled_out
def compare_command(
    *,
    run: sources.RunOption = None,
    model: sources.SearchedModelOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="Labelled images that the policy was not searched on: folder:DIR, npz:FILE …",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    policy: sources.PoliciesOption = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="Images to search MGrid's magnitude on; with --run, those of the search.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Numbers of views to compare at.")] = "1,5,10,20",
    methods: Annotated[
        str | None,
        typer.Option(help=f"Baselines, all by default: {','.join(BASELINES)}."),
    ] = None,
    runs: sources.RunsOption = 1,
    margin: Annotated[
        float, typer.Option(help="A difference in cLL that you would not care about.", min=0)
    ] = MARGIN,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Where the random baselines come from: cifar, imagenet, small, or a TOML file; "
            "the policy's own by default."
        ),
    ] = None,
    exclude: options.ExcludeOption = None,
    train_length: Annotated[
        int, typer.Option(help="Steps of a RandAugment sub-policy (MTrain, MGrid).", min=0)
    ] = Options.length,
    train_magnitude: Annotated[
        float, typer.Option(help="The magnitude that the model was trained with (MTrain).", min=0)
    ] = Options.magnitude,
    grid_views: sources.GridViewsOption = Options.grid_views,
    budget_views: Annotated[
        int | None, typer.Option(help="Pick the best for at most so many views.", min=1)
    ] = None,
    max_slowdown: Annotated[
        float | None, typer.Option(help="Pick the best for at most so many times the time.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where comparison.json and predictions go: --run, or else runs/compare.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    as_csv: Annotated[
        Path | None,
        typer.Option("--csv", help="Write every row to this CSV file.", rich_help_panel=_FILES),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(help="Write a table like the paper's to this file.", rich_help_panel=_FILES),
    ] = None,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Compare a policy with every baseline on held-out images, and say whether it helps."""
    asked = read_budgets(budgets)
    given = options.origin(
        model=model or None,
        data=data,
        validation=validation,
        group=group,
        recipe=recipe,
        exclude=exclude,
        **network.given(),
        **reading.given(),
    )
    inputs = read_inputs(run, policy, given, device, reading.full_size)
    settings = Options(train_length, train_magnitude, grid_views=grid_views)
    target = out or run or Path("runs/compare")
    chosen = None if methods is None else options.names(methods)
    store = _store_name(inputs, settings, asked, chosen, runs, seed, batch)
    with (
        RunDirectory(target),
        resumable("Run the same command again to go on.", timeout),
        progress_bar("predicting", "views") as bar,
    ):
        comparison = compare(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            indices=inputs.indices,
            validation=inputs.validation,
            recipe=inputs.recipe,
            budgets=asked,
            methods=chosen,
            options=settings,
            seed=seed,
            runs=runs,
            margin=margin,
            store_path=target / store,
            batch=batch,
            progress=bar,
            record=inputs.record,
        )
        save_comparison(target, comparison, inputs.dataset, inputs.indices)
    if as_csv is not None:
        write_text_atomic(as_csv, to_csv(comparison))
    if latex is not None:
        text = to_latex(comparison, inputs.dataset.name, inputs.record["model"]["spec"])
        write_text_atomic(latex, text)
    picked = None
    if budget_views is not None or max_slowdown is not None:
        picked = pick(comparison, budget_views, max_slowdown)
    _print(comparison, picked, target, as_json)


def _store_name(inputs: Inputs, settings: Options, *rest: Any) -> str:
    """Name the store by what is asked for, so that no other question meets its predictions."""
    mark = fingerprint(
        inputs.predictor.fingerprint,
        inputs.dataset.fingerprint,
        inputs.recipe.to_json(),
        [policy_to_json(policy) for policy in inputs.policies],
        asdict(settings),
        *rest,
    )
    return f"compare-{mark[:8]}.zarr"


def _print(comparison: Comparison, picked: Row | None, out: Path, as_json: bool) -> None:
    for method, reason in comparison.settings["left_out"].items():
        say(f"left out: {method}: {reason}")
    if as_json:
        chosen = None if picked is None else {"method": picked.method, "views": picked.views}
        print_json({"out": str(out), "picked": chosen, **comparison.to_json()})
        return
    console.print(terminal(comparison_table(comparison), console))
    console.print(terminal(frontier_table(comparison), console))
    say(f"written to {out}: comparison.json, examples.npz")
    if picked is not None:
        cll, accuracy = picked.metrics["cll"].mean, picked.metrics["accuracy"].mean
        console.print(
            f"Picked: {picked.label} with {views_text(picked.views)}: cLL {cll:.4f}, "
            f"accuracy {100 * accuracy:.2f} %, {picked.slowdown:.1f} × the time of one view.",
            soft_wrap=True,
            markup=False,
        )
    console.print(comparison.verdict.sentence, soft_wrap=True, markup=False, style="bold")
