"""`relook study robustness`: a policy found on clean images, and baselines, on corrupted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import progress_bar, resumable, say
from relook.cli.shared.inputs import ComparisonInputs, ComparisonSource, read_budgets
from relook.cli.study import shared as study
from relook.cli.study.corrupt import CorruptionsOption, SeveritiesOption, read_severities
from relook.data.corrupted import corrupted_source
from relook.evaluation.baselines import BASELINES, Options
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.policy.file import policy_to_json
from relook.studies.corruptions import check_corruptions, check_severities
from relook.studies.robustness import METHODS, STUDY, robustness, stratified_part


@groups.spelled_out
def robustness_command(
    *,
    compared: ComparisonSource,
    corrupted: Annotated[
        Path | None,
        typer.Option(
            help="The corrupted versions: CIFAR-10-C's or CIFAR-100-C's .npy files, ImageNet-C's "
            "folders, or what  relook study corrupt  wrote.",
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
    grid_views: sources.GridViewsOption = Options.grid_views,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where robustness.json, figures and predictions go: RUN, or else runs/robustness.",
            rich_help_panel=study.FILES,
        ),
    ] = None,
    results: study.ResultOptions,
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
) -> None:
    """Measure how errors grow under common corruptions, with and without the policy."""
    asked, chosen = read_budgets(budgets), options.names(methods)
    names = check_corruptions(None if corruptions is None else options.names(corruptions))
    levels = check_severities(read_severities(severities))
    inputs = compared.read()
    kept = stratified_part(inputs.dataset, images, seed)
    dataset, places = inputs.dataset.subset(kept), inputs.indices[kept]
    source = None if corrupted is None else corrupted_source(corrupted, dataset, places)
    settings = Options(grid_views=grid_views)
    target = out or compared.source.directory or Path("runs/robustness")
    record = {**inputs.record, "corrupted": None if corrupted is None else str(corrupted)}
    with (
        RunDirectory(target),
        resumable(study.GO_ON, timeout),
        progress_bar("predicting", "views") as bar,
    ):
        found = robustness(
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
        results.show(STUDY, found.labelled(model=inputs.record["model"]["spec"]), target)
    if found.settings["normalised"] and found.settings["made"]:
        say(
            "mCE divides by AlexNet's errors on the published ImageNet-C; these corruptions were "
            "made here, so it is close to, but not, the published measure"
        )


def _store_name(inputs: ComparisonInputs, settings: Options, rest: Sequence[object]) -> str:
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
