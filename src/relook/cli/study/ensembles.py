"""`relook study ensembles`: three ways to search for an ensemble, alongside baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from relook.api.progress_bars import search_bars
from relook.cli.shared import loading, options
from relook.cli.shared.console import resumable, say, typed_command
from relook.cli.shared.option_groups import FieldsOf, expand_options, option
from relook.cli.study import shared as study
from relook.cli.study.transfer import model_names
from relook.errors import RelookError
from relook.models import EnsemblePredictor
from relook.policy_search.settings import SearchSettings
from relook.studies.ensembles import METHODS, STUDY, ensembles

_SEARCH_OPTIONS = FieldsOf(
    SearchSettings,
    ("strategy", "draws", "pool_size", "seed", "batch", "accelerate", "precision", "memory"),
)


@expand_options
def ensembles_command(
    *,
    model: list[str] = options.model_option(
        "A member, as in  relook search. Give at least two.", "--model", "-m", default=...
    ),
    data: options.DataOption,
    test: study.TestOption = None,
    name: list[str] | None = options.model_option(
        "Names of the members in tables, in order.", shown="from their files"
    ),
    single: int = option(
        "For GPS single, the member whose policy and magnitude M* all members use: 1, 2 …",
        default=1,
        min=1,
    ),
    budgets: str = option("Numbers of views per member.", default="1,5,10,20"),
    methods: study.MethodsOption = ",".join(METHODS),
    runs: options.RunsOption = 1,
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    searching: Annotated[dict[str, Any], _SEARCH_OPTIONS],
    length: int | None = option(
        "Number of policy entries to select.", min=1, shown="the largest budget"
    ),
    split: options.SplitOption = None,
    baselines: options.BaselineOptions,
    out: Path = option(
        "Directory for ensembles.json, policies, figures and predictions.",
        default=Path("runs/ensembles"),
        panel=options.RESULTS,
    ),
    results: study.ResultOptions,
    reading: options.InputOptions,
    timeout: options.TimeoutOption = None,
) -> None:
    """Search for an ensemble in three ways, and score them alongside the usual baselines."""
    if single > len(model):
        raise RelookError(f"--single: expected a member from 1 to {len(model)}, got {single}")
    study.check_one_of(split, test)
    sizes, names = loading.read_budgets(budgets), model_names(model, name or [])
    settings = SearchSettings.of(
        recipe, loading.read_names(exclude), length=length or max(sizes), **searching
    )
    together, dataset, test_set = reading.read(model, data, test, recipe=settings.recipe, out=out)
    if not isinstance(together, EnsemblePredictor):
        raise RelookError(f"expected --model at least twice, one per member, got {len(model)}")
    settings = settings.with_split(split, len(dataset))
    with resumable(timeout=timeout), search_bars() as progress:
        found = ensembles(
            dict(zip(names, together.members, strict=True)),
            dataset,
            settings,
            test=test_set,
            single=names[single - 1],
            budgets=sizes,
            methods=loading.read_names(methods),
            options=baselines.options(),
            runs=runs,
            run=out,
            progress=progress,
            log=say,
            record={
                "command": typed_command(),
                "specs": {"models": list(model), "data": data, "test": test},
            },
        )
    results.show(STUDY, found, out, ["policies/"])
