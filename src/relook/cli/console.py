"""What every command shares: the terminal, progress bars, JSON output, clean interruption."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

console = Console(highlight=False)
messages = Console(stderr=True, highlight=False)

INTERRUPTED = 130


class ProgressCallback(Protocol):
    """Called with the units done, their total and, if there is one, a short note."""

    def __call__(self, done: int, total: int, note: str = "") -> None:
        """Show how far it is."""


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        """Show how many units a second are done."""
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {self.unit}/s", style="dim")


@contextmanager
def progress_bar(description: str, unit: str = "images") -> Iterator[ProgressCallback]:
    """Show a bar with speed and time left on stderr; yields a callable (done, total, note)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=messages) as progress:
        task = progress.add_task(escape(description), total=None, note="")

        def update(done: int, total: int, note: str = "") -> None:
            progress.update(task, completed=done, total=total, note=escape(note))

        yield update


@contextmanager
def resumable(how_to_go_on: str) -> Iterator[None]:
    """Turn Ctrl-C into one line that says how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; nothing is lost. {how_to_go_on}")
        raise typer.Exit(INTERRUPTED) from None


def say(text: str) -> None:
    """Print a line for people, beside the results (on stderr)."""
    messages.print(escape(text), soft_wrap=True)


def print_json(content: Any) -> None:
    """Print a result as JSON, for programs."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
