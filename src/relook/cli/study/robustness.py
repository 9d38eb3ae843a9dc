"""`relook study robustness`: a policy found on clean images, and baselines, on corrupted ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import say
from relook.cli.shared.inputs import ComparisonSource, read_budgets
from relook.cli.study import shared as study
from relook.cli.study.corrupt import CorruptionsOption, SeveritiesOption, read_shift
from relook.data.corrupted import corrupted_source
from relook.evaluation.baselines import Options
from relook.studies.robustness import METHODS, STUDY, robustness, stratified_part

_METHODS = ",".join(METHODS)


@groups.spelled_out
def robustness_command(
    *,
    compared: ComparisonSource,
    corrupted: Annotated[
        Path | None,
        options.of_model(
            help="The corrupted versions: CIFAR-10-C's or CIFAR-100-C's .npy files, ImageNet-C's "
            "folders, or what  relook study corrupt  wrote.",
            show_default="made from the clean images",
        ),
    ] = None,
    corruptions: CorruptionsOption = None,
    severities: SeveritiesOption = None,
    images: Annotated[
        int | None,
        typer.Option(help="Score on N images, stratified by class.", min=4),
    ] = None,
    budgets: study.BudgetsOption = "5,10,20",
    methods: study.MethodsOption = _METHODS,
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
    work: study.WorkOptions,
) -> None:
    """Measure how errors grow under common corruptions, with and without the policy."""
    asked, chosen = read_budgets(budgets), options.names(methods)
    shift = read_shift(corruptions, severities)
    inputs = compared.read()
    inputs.say_balance()
    kept = stratified_part(inputs.dataset, images, work.seed)
    inputs = replace(inputs, dataset=inputs.dataset.subset(kept), indices=inputs.indices[kept])
    if corrupted is not None:
        source = corrupted_source(corrupted, inputs.dataset, inputs.indices)
        shift = replace(shift, source=source)
    settings = Options(grid_views=grid_views)
    target = out or compared.source.directory or Path("runs/robustness")
    shifts = len(shift.corruptions or ()) * len(shift.severities or ())
    inputs = compared.on_engine(inputs, target, shifts * max(asked) * len(inputs.dataset))
    rest = [kept.tolist(), corrupted is None, asked, chosen, runs, work.seed, work.batch]
    with work.within(target) as bar:
        found = robustness(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            recipe=inputs.recipe,
            validation=inputs.validation,
            shift=shift,
            indices=inputs.indices,
            store_path=target / f"robustness-{inputs.mark(settings, *rest)}",
            progress=bar,
            record={**inputs.record, "corrupted": None if corrupted is None else str(corrupted)},
            budgets=asked,
            methods=chosen,
            options=settings,
            seed=work.seed,
            runs=runs,
            batch=work.batch,
        )
        results.show(STUDY, found.labelled(model=inputs.record["model"]["spec"]), target)
    if found.settings["normalised"] and found.settings["made"]:
        say(
            "mCE divides by AlexNet's errors on the published ImageNet-C; these corruptions were "
            "made here, so it is close to, but not, the published measure"
        )
