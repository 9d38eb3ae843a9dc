"""Options of the commands that take a finished search, or a model and a policy of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PANEL = "Model and data"
"""Where `--help` lists them."""

_CLASSIFIER = (
    "The classifier: timm:NAME@FILE, torch:package.module:factory\\[@FILE], onnx:FILE, hf:DIR, "
    "cifar:NAME@FILE or small@FILE. Given several times: their mean."
)

RunOption = Annotated[
    Path | None,
    typer.Option(
        help="A finished search: its model, data, policy and held-out images.",
        rich_help_panel=PANEL,
    ),
]
OwnModelOption = Annotated[
    list[str] | None, typer.Option("--model", "-m", help=_CLASSIFIER, rich_help_panel=PANEL)
]
SearchedModelOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model", "-m", help=_CLASSIFIER, show_default="the search's", rich_help_panel=PANEL
    ),
]
PoliciesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--policy",
        "-p",
        help="A policy file; several, searched with other seeds, count as runs.",
        rich_help_panel=PANEL,
    ),
]
RunsOption = Annotated[
    int, typer.Option(help="Draws of whatever is random: gives mean ± deviation.", min=1)
]
GridViewsOption = Annotated[
    int, typer.Option(help="Views to judge each of MGrid's magnitudes by.", min=1)
]
ViewsOption = Annotated[
    int | None, typer.Option(help="Model passes an image, at most.", min=1, show_default="all")
]
TemperatureOption = Annotated[
    str, typer.Option(help="policy, a number, or none for predictions without calibration.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]
