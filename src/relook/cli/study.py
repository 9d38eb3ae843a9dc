"""What the commands of the studies share: writing tables and drawing figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.console import say
from relook.errors import MissingExtraError
from relook.io.files import write_text_atomic

FILES = "Results"
"""Where `--help` lists what a study writes."""

CsvOption = Annotated[
    Path | None,
    typer.Option("--csv", help="Write every number to this file.", rich_help_panel=FILES),
]
MarkdownOption = Annotated[
    Path | None, typer.Option(help="Write the tables to this file.", rich_help_panel=FILES)
]
LatexOption = Annotated[
    Path | None,
    typer.Option(help="Write a table like the paper's to this file.", rich_help_panel=FILES),
]
FiguresOption = Annotated[
    bool, typer.Option(help="Draw the figures, as SVG and PNG.", rich_help_panel=FILES)
]


def write_tables(*wanted: tuple[Path | None, Callable[[], str]]) -> None:
    """Write those texts that a file is given for."""
    for path, text in wanted:
        if path is not None:
            write_text_atomic(path, text())


def drawn(draw: Callable[[], list[Path]]) -> list[Path]:
    """Draw figures, or say why there are none."""
    try:
        return draw()
    except MissingExtraError as error:
        say(f"no figures: {error}")
        return []


def written(out: Path, name: str, figures: list[Path]) -> str:
    """Say where results are."""
    return f"written to {out}: {name}" + (", figures/" if figures else "")
