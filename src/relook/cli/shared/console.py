"""Shared by all commands: the terminal, progress bars, JSON output, clean interruption."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from relook.api.progress_bars import ProgressCallback as ProgressCallback
from relook.api.progress_bars import messages
from relook.api.progress_bars import progress_bar as progress_bar
from relook.api.progress_bars import say as say
from relook.api.progress_bars import stage_bars as stage_bars
from relook.foundation.screen import Screen, print_facts, print_prose
from relook.foundation.watchdog import CallLimit, limited_calls
from relook.io.files import for_terminal

if TYPE_CHECKING:
    from relook.report.tables import Table

console = Screen(highlight=False, emoji=False)

NOT_MET = 1
USER_ERROR = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
RESUME_HINT = "Run the same command again to resume."


class TerminatedError(BaseException):
    """The process got SIGTERM. Like KeyboardInterrupt, no `except Exception` catches it."""


@contextmanager
def resumable(
    resume_hint: str | Callable[[], str] = RESUME_HINT,
    timeout: float | None = None,
    kept: str = "nothing is lost",
) -> Iterator[None]:
    """Turn Ctrl-C, SIGTERM and a hanging model into one line that says how to resume.

    `timeout` limits each call of the model, in seconds; `kept` says what is on disk.
    """

    def hint() -> str:
        return resume_hint if isinstance(resume_hint, str) else resume_hint()

    limit = None
    if timeout is not None:
        limit = CallLimit(timeout, partial(_end_hanging_call, hint, timeout))
    try:
        with limited_calls(limit):
            yield
    except KeyboardInterrupt:
        say(f"interrupted; {kept}. {hint()}")
        raise typer.Exit(INTERRUPTED) from None
    except TerminatedError:
        say(f"terminated; {kept}. {hint()}")
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
    """Print an error on stderr, as one line where that is no terminal."""
    print_prose(messages, f" {for_terminal(text)}", head="error:")


def _end_hanging_call(hint: Callable[[], str], timeout: float, where: str) -> NoReturn:
    """End the process, as the thread of a hanging model cannot be ended alone."""
    messages.show_cursor(True)
    fail(
        f"the model has not answered for {timeout:g} s (--timeout) on {where}; nothing is lost. "
        f"{hint()}"
    )
    messages.file.flush()
    os._exit(USER_ERROR)


def typed_command() -> str:
    """Return the command as it was typed."""
    return shlex.join(["relook", *sys.argv[1:]])


def print_table(table: Table) -> None:
    """Print a table, without the columns that do not fit the terminal."""
    from relook.report.tables import terminal  # report needs packages that doctor has to check

    console.print(terminal(table, console))


def print_text(text: str, style: str = "") -> None:
    """Print a text literally, on a terminal wrapped at its width."""
    print_prose(console, text, style)


def print_verdict(text: str) -> None:
    """Print a result in sentences: the first in bold, the others as a list."""
    print_facts(console, text)


def print_json(content: Any) -> None:
    """Print a result as JSON."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


def check_log(tracker: str | None) -> None:
    """Raise if a tracker is unknown or not installed, before any work is done."""
    if tracker is not None:
        from relook.adapters.tracking import check_tracker

        check_tracker(tracker)


def log_finished_run(run: Path, tracker: str | None) -> None:
    """Log a finished run; failures are notes."""
    if tracker is not None:
        from relook.adapters.tracking import log_run

        if log_run(run, tracker):
            viewers = {
                "tensorboard": f"tensorboard --logdir {run / tracker}",
                "mlflow": "mlflow ui",
            }
            viewer = f"; to view it: {viewers[tracker]}" if tracker in viewers else ""
            say(f"logged to {tracker}{viewer}")
