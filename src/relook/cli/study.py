"""What the commands of the studies share: writing tables, drawing figures, bars by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.console import ProgressCallback, progress_bar, say
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


@contextmanager
def stage_bars(unit: Callable[[str], str]) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each stage, named by its words, one at a time; `unit` names what it counts."""
    with ExitStack() as stack:
        bars: dict[str, ProgressCallback] = {}

        def update(stage: str, done: int, total: int) -> None:
            if stage not in bars:
                stack.close()
                bars[stage] = stack.enter_context(progress_bar(stage, unit(stage)))
            bars[stage](done, total)

        yield update
