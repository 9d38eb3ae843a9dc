"""`relook study ensembles`: three ways to search for an ensemble, alongside baselines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.search import search_bars
from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options, sources
from relook.cli.shared.console import resumable, say
from relook.cli.shared.inputs import read_budgets
from relook.cli.study import shared as study
from relook.cli.study.transfer_inputs import model_names
from relook.errors import RelookError
from relook.evaluation.baselines import BASELINES, Options
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


@groups.spelled_out
def ensembles_command(
    *,
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            "-m",
            help="A member, as in  relook search. Give two or more.",
            show_default=False,
            rich_help_panel=options.PANEL,
        ),
    ],
    data: options.DataOption,
    test: Annotated[
        str | None,
        typer.Option(
            help="A separate test set instead of a held-out share.", rich_help_panel=options.PANEL
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="What tables call the members, in order.",
            show_default="from their files",
            rich_help_panel=options.PANEL,
        ),
    ] = None,
    single: Annotated[
        int,
        typer.Option(
            help="Which member's policy and magnitude M* serve all in the way GPS single: 1, 2 …",
            min=1,
        ),
    ] = 1,
    budgets: Annotated[str, typer.Option(help="Numbers of views a member.")] = "1,5,10,20",
    methods: Annotated[str, typer.Option(help=f"Baselines, of: {','.join(BASELINES)}.")] = ",".join(
        METHODS
    ),
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
        int, typer.Option(help="Steps of a RandAugment sub-policy (MTrain, MGrid).", min=0)
    ] = Options.length,
    train_magnitude: Annotated[
        float, typer.Option(help="The magnitude that the members were trained with.", min=0)
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
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    timeout: options.TimeoutOption = None,
) -> None:
    """Search for an ensemble in three ways, and score them alongside the usual baselines."""
    if single > len(model):
        raise RelookError(f"--single: expected a member from 1 to {len(model)}, got {single}")
    if split is not None and test is not None:
        raise RelookError("expected one of --split and --test, got both: give one")
    asked, names = read_budgets(budgets), model_names(model, name or [])
    settings = SearchSettings.of(
        recipe, options.names(exclude), length=length or max(asked), **searching
    )
    together = network.load(model, device, reading)
    if not isinstance(together, EnsemblePredictor):
        raise RelookError(f"expected --model at least twice, one a member, got {len(model)}")
    images = reading.of(data, crops=settings.recipe.start is not None)
    images |= {"model": together, "overflow": images_kept.beside(out)}
    dataset = options.read_data(data, group, **images)
    proof = None if test is None else options.read_data(test, like=dataset, **images)
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
                "command": study.command(),
                "specs": {"models": list(model), "data": data, "test": test},
            },
        )
    results.show(STUDY, found, out, ["policies/"])
