"""`relook study objectives`: the same pool searched with accuracy, LL, cLL … as the objective."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from relook.cli.shared import loading, options
from relook.cli.shared.console import resumable, stage_bars
from relook.cli.shared.option_groups import FieldsOf, expand_options, option
from relook.cli.study import shared as study
from relook.data import Dataset
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.models import Predictor
from relook.policy_search.settings import SearchSettings
from relook.selection.objectives import OBJECTIVES
from relook.studies.objectives import PAPER_OBJECTIVES, STUDY, objectives

_IDENTIFYING = ("pool_size", "draws", "strategy", "balanced", "holdout", "left_out", "batch")
"""The settings that predictions depend on."""

_SEARCH_OPTIONS = FieldsOf(
    SearchSettings, ("draws", "length", "pool_size", "balanced", "seed", "batch", "memory")
)


@expand_options
def objectives_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    chosen: str = option(
        f"The objectives to search by, out of: {','.join(OBJECTIVES)}.",
        "--objectives",
        default=",".join(PAPER_OBJECTIVES),
    ),
    runs: int = option(
        "Searches per objective, each with its own pool and split.", default=5, min=1
    ),
    out: study.OutOption = Path("runs/objectives"),
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    strategy: str = option(
        "greedy, or paper (the paper's pools and fresh draws).", default="greedy"
    ),
    searching: Annotated[dict[str, Any], _SEARCH_OPTIONS],
    budgets: str | None = option("Numbers of views to score at: 5,10,20.", shown="all entries"),
    split: options.SplitOption = None,
    test: study.TestOption = None,
    name: study.NameOption = None,
    results: study.ResultOptions,
    reading: options.InputOptions,
    timeout: options.TimeoutOption = None,
) -> None:
    """Search the same pool by accuracy, LL and cLL, and score the policies found."""
    study.check_one_of(split, test)
    settings = SearchSettings.of(
        recipe, loading.read_names(exclude), strategy=strategy, **searching
    )
    predictor, dataset, test_set = reading.read(model, data, test, recipe=settings.recipe, out=out)
    settings = settings.with_split(split, len(dataset))
    label = name or " + ".join(model)
    bars = stage_bars(lambda stage: (stage, "steps" if "selecting" in stage else "views"))
    with RunDirectory(out), resumable(timeout=timeout), bars as progress:
        found = objectives(
            predictor,
            dataset,
            settings,
            objectives=loading.read_names(chosen),
            test=test_set,
            directory=out / _directory(predictor, dataset, test_set, settings),
            progress=progress,
            record=study.model_record(label, predictor),
            runs=runs,
            budgets=(settings.length,) if budgets is None else loading.read_budgets(budgets),
        )
        results.show(STUDY, found.labelled(model=label), out)


def _directory(
    predictor: Predictor, dataset: Dataset, test: Dataset | None, settings: SearchSettings
) -> str:
    """Name the directory of predictions by all they depend on: more runs or objectives reuse it."""
    identity = fingerprint(
        predictor.fingerprint,
        dataset.fingerprint,
        None if test is None else test.fingerprint,
        {
            "recipe": settings.recipe.to_json(),
            "length": None,
            **{name: getattr(settings, name) for name in _IDENTIFYING},
        },
    )
    return f"objectives-{identity[:8]}"
