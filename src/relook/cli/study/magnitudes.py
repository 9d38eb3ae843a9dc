"""`relook study magnitudes`: RandAugment at test time, and the best magnitude by each metric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from relook.cli.shared import loading, options
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.study import shared as study
from relook.errors import RelookError
from relook.evaluation.baselines import GRID, Options
from relook.io.fingerprint import fingerprint
from relook.policy.recipes import get_recipe
from relook.studies.magnitudes import STUDY, check_grid, magnitudes

_GRID = ",".join(f"{step:g}" for step in GRID)


@expand_options
def magnitudes_command(
    *,
    model: options.ModelOption,
    data: options.DataOption,
    grid: str = option("The magnitudes M to try, from 0 to 60.", "--magnitudes", default=_GRID),
    views: int = option("Views to average; the paper averages 100.", default=20, min=1),
    length: int = option("Transforms per view (RandAugment's N).", default=Options.length, min=0),
    runs: options.RunsOption = 1,
    out: study.OutOption = Path("runs/magnitudes"),
    recipe: options.RecipeOption = "cifar",
    exclude: options.ExcludeOption = None,
    draws: str = option(
        "fixed (the same views for all images) or fresh (drawn for each image, as in the paper).",
        default="fixed",
    ),
    name: study.NameOption = None,
    results: study.ResultOptions,
    reading: options.InputOptions,
    work: study.WorkOptions,
) -> None:
    """Score test-time RandAugment at each magnitude, and find the best by each metric."""
    if draws not in ("fixed", "fresh"):
        raise RelookError(f"--draws: expected fixed or fresh, got {draws!r}")
    steps = _grid(grid)
    transforms = get_recipe(recipe).without(loading.read_names(exclude))
    predictor, dataset, _ = reading.read(model, data, recipe=transforms, out=out)
    label = name or " + ".join(model)
    settings: dict[str, Any] = {
        "views": views,
        "length": length,
        "draws": draws,
        "seed": work.seed,
        "batch": work.batch,
    }
    identity = fingerprint(
        predictor.fingerprint, dataset.fingerprint, transforms.to_json(), settings
    )
    with work.in_directory(out) as bar:
        found = magnitudes(
            predictor,
            dataset,
            recipe=transforms,
            grid=steps,
            runs=runs,
            store_path=out / f"magnitudes-{identity[:8]}",
            progress=bar,
            record=study.model_record(label, predictor),
            **settings,
        )
        results.show(STUDY, found.labelled(model=label), out)


def _grid(text: str) -> tuple[float, ...]:
    try:
        return check_grid([float(part) for part in text.split(",")])
    except ValueError:
        raise RelookError(f"--magnitudes: expected numbers like 0,5,10; got {text!r}") from None
