"""`relook robustness`: a policy found on clean images, beside baselines, on corrupted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relook.cli import groups, options, sources
from relook.cli.console import console, print_json, progress_bar, resumable, say
from relook.cli.corrupt import CorruptionsOption, SeveritiesOption, read_severities
from relook.cli.inputs import Inputs, read_budgets, read_inputs
from relook.data.corrupted import corrupted_source
from relook.errors import MissingExtraError
from relook.evaluation.baselines import BASELINES, Options
from relook.io.files import write_text_atomic
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.policy.file import policy_to_json
from relook.studies.corruptions import check_corruptions, check_severities
from relook.studies.robustness import METHODS, robustness, stratified_part
from relook.studies.robustness_result import Robustness
from relook.studies.robustness_tables import (
    corruption_table,
    method_table,
    robustness_csv,
    robustness_latex,
    robustness_markdown,
)

_FILES = "Results"


@groups.spelled_out
def robustness_command(
    *,
    run: sources.RunOption = None,
    model: sources.SearchedModelOption = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="Clean labelled images that the policy was not searched on.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    policy: sources.PoliciesOption = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="Clean images to search MGrid's magnitude on; with --run, those of the search.",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    corrupted: Annotated[
        Path | None,
        typer.Option(
            help="The corrupted versions: CIFAR-10-C's or CIFAR-100-C's .npy files, ImageNet-C's "
            "folders, or what  relook corrupt  wrote.",
            show_default="made from the clean images",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    corruptions: CorruptionsOption = None,
    severities: SeveritiesOption = None,
    images: Annotated[
        int | None,
        typer.Option(help="Score on so many images, of each class in proportion.", min=4),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Numbers of views to compare at.")] = "5,10,20",
    methods: Annotated[str, typer.Option(help=f"Baselines, of: {','.join(BASELINES)}.")] = ",".join(
        METHODS
    ),
    runs: sources.RunsOption = 1,
    recipe: Annotated[
        str | None,
        typer.Option(help="Where the random baselines come from; the policy's own by default."),
    ] = None,
    exclude: options.ExcludeOption = None,
    grid_views: sources.GridViewsOption = Options.grid_views,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where robustness.json, figures and predictions go: --run, or else "
            "runs/robustness.",
            rich_help_panel=_FILES,
        ),
    ] = None,
    as_csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", help="Write every error and cLL to this file.", rich_help_panel=_FILES
        ),
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write both tables to this file.", rich_help_panel=_FILES)
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(help="Write a table like the paper's to this file.", rich_help_panel=_FILES),
    ] = None,
    figures: Annotated[
        bool, typer.Option(help="Draw the figures, as SVG and PNG.", rich_help_panel=_FILES)
    ] = True,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Measure how errors grow under common corruptions, with and without the policy."""
    asked, chosen = read_budgets(budgets), options.names(methods)
    names = check_corruptions(None if corruptions is None else options.names(corruptions))
    levels = check_severities(read_severities(severities))
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
    kept = stratified_part(inputs.dataset, images, seed)
    dataset, places = inputs.dataset.subset(kept), inputs.indices[kept]
    source = None if corrupted is None else corrupted_source(corrupted, dataset, places)
    settings = Options(grid_views=grid_views)
    target = out or run or Path("runs/robustness")
    record = {**inputs.record, "corrupted": None if corrupted is None else str(corrupted)}
    with (
        RunDirectory(target),
        resumable("Run the same command again to go on.", timeout),
        progress_bar("predicting", "views") as bar,
    ):
        study = robustness(
            inputs.predictor,
            dataset,
            inputs.policies,
            recipe=inputs.recipe,
            validation=inputs.validation,
            corrupted=source,
            corruptions=names,
            severities=levels,
            budgets=asked,
            methods=chosen,
            options=settings,
            seed=seed,
            runs=runs,
            indices=places,
            store_path=target
            / _store_name(
                inputs,
                settings,
                [kept.tolist(), corrupted is None, asked, chosen, runs, seed, batch],
            ),
            batch=batch,
            progress=bar,
            record=record,
        )
        study.save(target / "robustness.json")
        drawn = _draw(study, target) if figures else []
    if as_csv is not None:
        write_text_atomic(as_csv, robustness_csv(study))
    if markdown is not None:
        write_text_atomic(markdown, robustness_markdown(study))
    if latex is not None:
        text = robustness_latex(study, dataset.name, inputs.record["model"]["spec"])
        write_text_atomic(latex, text)
    _print(study, target, drawn, as_json)


def _store_name(inputs: Inputs, settings: Options, rest: Sequence[object]) -> str:
    """Name the stores by what is asked for; more corruptions find those that are done."""
    mark = fingerprint(
        inputs.predictor.fingerprint,
        inputs.dataset.fingerprint,
        inputs.recipe.to_json(),
        [policy_to_json(policy) for policy in inputs.policies],
        asdict(settings),
        *rest,
    )
    return f"robustness-{mark[:8]}"


def _draw(study: Robustness, target: Path) -> list[Path]:
    try:
        from relook.studies.robustness_figures import save_robustness_figures
    except MissingExtraError as error:
        say(f"no figures: {error}")
        return []
    return save_robustness_figures(study, target / "figures")


def _print(study: Robustness, out: Path, drawn: list[Path], as_json: bool) -> None:
    for method, reason in study.settings["left_out"].items():
        say(f"left out: {method}: {reason}")
    if as_json:
        print_json({"out": str(out), "figures": [str(path) for path in drawn], **study.to_json()})
        return
    console.print(method_table(study))
    console.print(corruption_table(study))
    if study.normalised and study.made:
        say(
            "mCE divides by AlexNet's errors on the published ImageNet-C; these corruptions were "
            "made here, so it is close to, but not, the published measure"
        )
    say(f"written to {out}: robustness.json" + (", figures/" if drawn else ""))
    console.print(study.sentence, soft_wrap=True, markup=False, style="bold")
