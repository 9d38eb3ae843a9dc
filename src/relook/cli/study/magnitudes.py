"""`relook study magnitudes`: RandAugment at test time, and the best magnitude by each metric."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.shared import full_size as images_kept
from relook.cli.shared import groups, options
from relook.cli.shared.console import progress_bar, resumable
from relook.cli.study import shared as study
from relook.errors import RelookError
from relook.evaluation.baselines import GRID, Options
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.policy.recipes import get_recipe
from relook.studies.magnitudes import STUDY, checked_grid, magnitudes

_GRID = ",".join(f"{step:g}" for step in GRID)


@groups.spelled_out
def magnitudes_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    grid: Annotated[
        str, typer.Option("--magnitudes", help="The magnitudes M to try, from 0 to 60.")
    ] = _GRID,
    views: Annotated[int, typer.Option(help="Views to average; the paper: 100.", min=1)] = 20,
    length: Annotated[
        int, typer.Option(help="Transforms of a view (RandAugment's N).", min=0)
    ] = Options.length,
    runs: Annotated[
        int, typer.Option(help="Draws of the transforms: gives mean ± deviation.", min=1)
    ] = 1,
    out: Annotated[
        Path, typer.Option(help="The study's directory; the same command goes on in it.")
    ] = Path("runs/magnitudes"),
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    draws: Annotated[
        str,
        typer.Option(
            help="fixed: the same views of every image; fresh: drawn for each image, as in the "
            "paper."
        ),
    ] = "fixed",
    name: Annotated[
        str | None, typer.Option(help="What tables call the model.", show_default="its --model")
    ] = None,
    results: study.ResultOptions,
    group: options.GroupOption = None,
    reading: groups.ReadingOptions,
    network: groups.NetworkOptions,
    device: options.DeviceOption = "cpu",
    seed: options.SeedOption = 0,
    batch: options.BatchOption = None,
    timeout: options.TimeoutOption = None,
) -> None:
    """Score RandAugment at test time for rising magnitudes, and find the best by each metric."""
    study.check_draws(draws)
    steps = _grid(grid)
    transforms = get_recipe(recipe).without(options.names(exclude))
    predictor = network.load(model, device, reading)
    dataset = options.read_data(
        data,
        group,
        model=predictor,
        overflow=images_kept.beside(out),
        **reading.of(data, crops=transforms.start is not None),
    )
    label = name or " + ".join(model)
    settings: dict[str, Any] = {
        "views": views,
        "length": length,
        "draws": draws,
        "seed": seed,
        "batch": batch,
    }
    mark = fingerprint(predictor.fingerprint, dataset.fingerprint, transforms.to_json(), settings)
    record = {
        "command": study.command(),
        "model": {"spec": label, "fingerprint": predictor.fingerprint},
    }
    with (
        RunDirectory(out),
        resumable(study.GO_ON, timeout),
        progress_bar("predicting", "views") as bar,
    ):
        found = magnitudes(
            predictor,
            dataset,
            recipe=transforms,
            grid=steps,
            runs=runs,
            store_path=out / f"magnitudes-{mark[:8]}",
            progress=bar,
            record=record,
            **settings,
        )
        results.show(STUDY, found.labelled(model=label), out)


def _grid(text: str) -> tuple[float, ...]:
    try:
        return checked_grid([float(part) for part in text.split(",")])
    except ValueError:
        raise RelookError(f"--magnitudes: expected numbers like 0,5,10; got {text!r}") from None
