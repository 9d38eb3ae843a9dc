"""`relook study ensembles`: three ways to search for an ensemble, alongside baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relook.api.progress_bars import search_bars
from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import resumable, say, typed_command
from relook.cli.shared.inputs import read_budgets
from relook.cli.study import shared as study
from relook.cli.study.transfer import model_names
from relook.errors import RelookError
from relook.evaluation.baselines import Options
from relook.models import EnsemblePredictor
from relook.policy_search.settings import SearchSettings
from relook.studies.ensembles import METHODS, STUDY, ensembles

MemberFields = Annotated[
    dict[str, Any],
    groups.FieldsOf(
        SearchSettings,
        ("strategy", "draws", "pool_size", "seed", "batch", "accelerate", "precision", "memory"),
    ),
]

_METHODS = ",".join(METHODS)
_MembersOption = Annotated[
    list[str],
    options.of_model(
        "--model",
        "-m",
        help="A member, as in  relook search. Give two or more.",
        show_default=False,
    ),
]
_NamesOption = Annotated[
    list[str] | None,
    options.of_model(
        help="What tables call the members, in order.", show_default="from their files"
    ),
]


@groups.spelled_out
def ensembles_command(
    *,
    model: _MembersOption,
    data: options.DataOption,
    test: study.TestOption = None,
    name: _NamesOption = None,
    single: Annotated[
        int,
        typer.Option(
            help="Which member's policy and magnitude M* serve all in the way GPS single: 1, 2 …",
            min=1,
        ),
    ] = 1,
    budgets: Annotated[str, typer.Option(help="Numbers of views per member.")] = "1,5,10,20",
    methods: study.MethodsOption = _METHODS,
    runs: sources.RunsOption = 1,
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    searching: MemberFields,
    length: Annotated[
        int | None,
        typer.Option(help="Entries of a policy.", min=1, show_default="the largest budget"),
    ] = None,
    split: options.SplitOption = None,
    train_length: Annotated[
        int, options.of_details(help="Steps of a RandAugment sub-policy (MTrain, MGrid).", min=0)
    ] = Options.length,
    train_magnitude: Annotated[
        float, options.of_details(help="The magnitude that the members were trained with.", min=0)
    ] = Options.magnitude,
    grid_views: sources.GridViewsOption = Options.grid_views,
    out: Annotated[
        Path,
        typer.Option(
            help="Where ensembles.json, policies, figures and predictions go.",
            rich_help_panel=study.FILES,
        ),
    ] = Path("runs/ensembles"),
    results: study.ResultOptions,
    reading: groups.InputOptions,
    timeout: options.TimeoutOption = None,
) -> None:
    """Search for an ensemble in three ways, and score them alongside the usual baselines."""
    if single > len(model):
        raise RelookError(f"--single: expected a member from 1 to {len(model)}, got {single}")
    study.check_one_of(split, test)
    asked, names = read_budgets(budgets), model_names(model, name or [])
    settings = SearchSettings.of(
        recipe, options.names(exclude), length=length or max(asked), **searching
    )
    crops = settings.recipe.start is not None
    together, dataset, proof = reading.read(model, data, test, crops=crops, out=out)
    if not isinstance(together, EnsemblePredictor):
        raise RelookError(f"expected --model at least twice, one per member, got {len(model)}")
    settings = settings.with_split(split, len(dataset))
    with resumable(study.GO_ON, timeout), search_bars() as progress:
        found = ensembles(
            dict(zip(names, together.members, strict=True)),
            dataset,
            settings,
            test=proof,
            single=names[single - 1],
            budgets=asked,
            methods=options.names(methods),
            options=Options(train_length, train_magnitude, grid_views=grid_views),
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
