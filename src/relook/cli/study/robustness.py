"""`relook study robustness`: a policy found on clean images, and baselines, on corrupted ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from relook.cli.shared import loading, options
from relook.cli.shared.console import say
from relook.cli.shared.inputs import ComparisonSource
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.study import shared as study
from relook.cli.study.corrupt import CorruptionsOption, SeveritiesOption, read_conditions
from relook.data.corrupted import corrupted_source
from relook.evaluation.baselines import Options
from relook.studies.robustness import METHODS, STUDY, Shift, robustness, stratified_part


@expand_options
def robustness_command(
    *,
    compared: ComparisonSource,
    corrupted: Path | None = options.model_option(
        "The corrupted versions: CIFAR-10-C's or CIFAR-100-C's .npy files, ImageNet-C's folders, "
        "or the output of  relook study corrupt.",
        shown="generated from the clean images",
    ),
    corruptions: CorruptionsOption = None,
    severities: SeveritiesOption = None,
    images: int | None = option("Score on N images, stratified by class.", min=4),
    budgets: study.BudgetsOption = "5,10,20",
    methods: study.MethodsOption = ",".join(METHODS),
    runs: options.RunsOption = 1,
    grid_views: options.GridViewsOption = Options.grid_views,
    out: Path | None = option(
        "Directory for robustness.json, figures and predictions: RUN, or else runs/robustness.",
        panel=options.RESULTS,
    ),
    results: study.ResultOptions,
    work: study.WorkOptions,
) -> None:
    """Measure how errors grow under common corruptions, with and without the policy."""
    sizes, names = loading.read_budgets(budgets), loading.read_names(methods)
    chosen, levels = read_conditions(corruptions, severities)
    inputs = compared.read()
    inputs.note_balance()
    kept = stratified_part(inputs.dataset, images, work.seed)
    inputs = replace(inputs, dataset=inputs.dataset.subset(kept), indices=inputs.indices[kept])
    source = None
    if corrupted is not None:
        source = corrupted_source(corrupted, inputs.dataset, inputs.indices)
    settings = Options(grid_views=grid_views)
    target = out or compared.source.directory or Path("runs/robustness")
    passes = len(chosen) * len(levels) * max(sizes) * len(inputs.dataset)
    inputs = compared.with_engine(inputs, target, passes)
    more = [kept.tolist(), corrupted is None, sizes, names, runs, work.seed, work.batch]
    mark = inputs.short_fingerprint(settings, *more)
    with work.in_directory(target) as bar:
        found = robustness(
            inputs.predictor,
            inputs.dataset,
            inputs.policies,
            recipe=inputs.recipe,
            validation=inputs.validation,
            shift=Shift(chosen, levels, source),
            indices=inputs.indices,
            store_path=target / f"robustness-{mark}",
            progress=bar,
            record={**inputs.record, "corrupted": corrupted and str(corrupted)},
            budgets=sizes,
            methods=names,
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
