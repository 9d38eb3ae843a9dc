"""Options that several commands share, and how their texts are read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from relook.data import Dataset, load_data, read_groups
from relook.errors import RelookError
from relook.models import Predictor, load_model

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        help="The classifier: torch:package.module:factory\\[@checkpoint] or small@FILE.",
        show_default=False,
        rich_help_panel="Model and data",
    ),
]
DataOption = Annotated[
    str,
    typer.Option(
        "--data",
        "-d",
        help="Labelled images: npz:FILE (images, labels), or the built-in digits.",
        show_default=False,
        rich_help_panel="Model and data",
    ),
]
MeanOption = Annotated[
    str | None,
    typer.Option(
        help="What the model's inputs subtract, on the scale 0…1: one number, or one a "
        "channel: 0.49,0.48,0.45.",
        rich_help_panel="Model and data",
    ),
]
StdOption = Annotated[
    str | None,
    typer.Option(
        help="What the model's inputs are divided by, after the mean.",
        rich_help_panel="Model and data",
    ),
]
OutputsOption = Annotated[
    str,
    typer.Option(
        help="What the model returns: logits, probabilities or log_probs.",
        rich_help_panel="Model and data",
    ),
]
DeviceOption = Annotated[
    str, typer.Option(help="Where the model runs: cpu, cuda …", rich_help_panel="Model and data")
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        help="Images that belong together (one patient, scene or video) stay on one side of "
        "every split: an array of the npz file, or a file with one id an image.",
        rich_help_panel="Model and data",
    ),
]
RecipeOption = Annotated[
    str,
    typer.Option(
        help="Which views to try: cifar, imagenet, small, or a TOML file of your own.",
    ),
]
ExcludeOption = Annotated[
    str | None,
    typer.Option(
        help="Transforms that make no sense for these images: cutout,invert; "
        "flip leaves all mirror images out.",
    ),
]
SeedOption = Annotated[int, typer.Option(help="Everything random follows from it.", min=0)]
BatchOption = Annotated[int, typer.Option(help="Images in one model call.", min=1)]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as JSON instead of tables.")
]
PolicyOption = Annotated[
    Path,
    typer.Option("--policy", "-p", help="A policy file (policy.json).", show_default=False),
]


def read_model(
    spec: str, mean: str | None, std: str | None, outputs: str, device: str
) -> Predictor:
    """Load the model that the options describe."""
    return load_model(
        spec,
        mean=numbers(mean, "--mean"),
        std=numbers(std, "--std"),
        outputs=outputs,  # type: ignore[arg-type]  # checked by the loader
        device=device,
    )


def read_data(spec: str, group: str | None = None) -> Dataset:
    """Load the images that the options describe."""
    dataset = load_data(spec)
    return dataset if group is None else replace(dataset, groups=read_groups(group, dataset))


def numbers(text: str | None, option: str) -> float | tuple[float, ...] | None:
    """Read `0.5` or `0.49,0.48,0.45`."""
    if text is None:
        return None
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise RelookError(
            f"{option}: expected a number, or one a channel like 0.49,0.48,0.45; got {text!r}"
        ) from None
    return values[0] if len(values) == 1 else values


def names(text: str | None) -> tuple[str, ...]:
    """Read `cutout,invert`."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def origin(**options: Any) -> dict[str, Any]:
    """Return the options that say where model and data came from, for the run's record."""
    return {name: value for name, value in options.items() if value is not None}
