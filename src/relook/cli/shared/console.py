"""What every command shares: the terminal, progress bars, JSON output, clean interruption."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import Any, NoReturn, Protocol

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

from relook.foundation import wording
from relook.foundation.progress import StageProgress
from relook.foundation.watchdog import CallLimit, limited_calls
from relook.io.files import for_terminal

console = Console(highlight=False, emoji=False)
messages = Console(stderr=True, highlight=False, emoji=False)

USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM

LOG_SECONDS = 30.0
"""Between two lines of progress where stderr is no terminal."""


class TerminatedError(BaseException):
    """The process was asked to end (SIGTERM); as with Ctrl-C, only the outermost catch it."""


class ProgressCallback(Protocol):
    """A `Progress` that also shows a short note, if there is one."""

    def __call__(
        self, done: int, total: int, score: float | None = None, /, *, note: str = ""
    ) -> None:
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
def progress_bar(
    description: str, unit: str = "images", objective: str = "cll"
) -> Iterator[ProgressCallback]:
    """Show a bar with speed and time left on stderr; yields what to report to.

    A score is shown as one of the `objective`. Where stderr is no terminal, as in a log, a line
    comes every half minute instead.
    """
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
        log = _Log()

        def update(done: int, total: int, score: float | None = None, /, *, note: str = "") -> None:
            note = note if score is None else score_note(objective, score)
            progress.update(task, completed=done, total=total, note=escape(note))
            if not messages.is_terminal and log.is_due(done, total):
                say(f"{description}: {log.line(done, total)}")

        yield update


@contextmanager
def stage_bars(
    named: Callable[[str], tuple[str, str]], objective: str = "cll"
) -> Iterator[StageProgress]:
    """Show a bar for each stage, one at a time; `named` says its title and what it counts."""
    with ExitStack() as stack:
        bars: dict[str, ProgressCallback] = {}

        def update(stage: str, done: int, total: int, score: float | None = None, /) -> None:
            if stage not in bars:
                stack.close()
                bars[stage] = stack.enter_context(progress_bar(*named(stage), objective))
            bars[stage](done, total, score)

        yield update


def score_note(objective: str, score: float) -> str:
    """Return the score so far as a progress bar shows it: `cLL −0.2134`."""
    name = "cLL" if objective == "cll" else objective
    return f"{name} {score:.4f}".replace("-", "−")


class _Log:
    """When to write a line of progress where there is no terminal, and what it says."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.first: int | None = None  # what an earlier run has done says nothing of the speed

    def is_due(self, done: int, total: int) -> bool:
        """Return whether the last line is old enough; the end has a line of its own."""
        if self.first is None:
            self.began, self.first = time.monotonic(), done
        if done >= total or time.monotonic() - self.last < LOG_SECONDS:
            return False
        self.last = time.monotonic()
        return True

    def line(self, done: int, total: int) -> str:
        """Return how far it is, and the time left."""
        text = f"{done:,} of {total:,} ({100 * done / total:.0f} %)"
        made = done - (self.first or 0)
        if made <= 0:
            return text
        left = (time.monotonic() - self.began) * (total - done) / made
        return f"{text}, about {wording.duration(left)} left"


@contextmanager
def resumable(
    how_to_go_on: str, timeout: float | None = None, kept: str = "nothing is lost"
) -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a model that hangs into one line that says how to go on.

    `timeout` is how many seconds a call of the model may take; `kept` says what is on disk.
    """
    limit = None
    if timeout is not None:
        limit = CallLimit(timeout, partial(_give_up, how_to_go_on, timeout))
    try:
        with limited_calls(limit):
            yield
    except KeyboardInterrupt:
        say(f"interrupted; {kept}. {how_to_go_on}")
        raise typer.Exit(INTERRUPTED) from None
    except TerminatedError:
        say(f"terminated; {kept}. {how_to_go_on}")
        raise typer.Exit(TERMINATED) from None


@contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Raise TerminatedError on SIGTERM within the block; a second one ends the process at once."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        signal.signal(number, signal.SIG_DFL)
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fail(text: str) -> None:
    """Print the one line of an error, on stderr."""
    messages.print(f"[bold red]error:[/] {escape(for_terminal(text))}", soft_wrap=True)


def _give_up(how_to_go_on: str, timeout: float, where: str) -> NoReturn:
    """End the process: the thread of a model that hangs cannot be ended alone."""
    messages.show_cursor(True)
    fail(
        f"the model has not answered for {timeout:g} s (--timeout) on {where}; nothing is lost. "
        f"{how_to_go_on}"
    )
    messages.file.flush()
    os._exit(USER_ERROR)


def say(text: str) -> None:
    """Print a line for people, on stderr, apart from the results."""
    messages.print(escape(for_terminal(text)), soft_wrap=True)


def print_json(content: Any) -> None:
    """Print a result as JSON, for programs."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
