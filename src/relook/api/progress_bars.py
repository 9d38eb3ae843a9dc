"""Progress bars in a terminal or a notebook, and lines of progress in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Protocol

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
from relook.foundation.screen import print_prose
from relook.io.files import for_terminal

messages = Console(stderr=True, highlight=False, emoji=False)
"""Where messages go, apart from results."""

LOG_SECONDS = 30.0
"""The time between two lines of progress if stderr is not a terminal."""

STAGES = {
    "probe": ("trying borders and mirror images", "views"),
    "predict": ("predicting the pool", "views"),
    "map": ("copying predictions to be mapped", "views"),
    "select": ("selecting", "steps"),
    "half 1": ("selecting by the first half alone", "steps"),
    "half 2": ("selecting by the second half alone", "steps"),
    "evaluate": ("predicting held-out images", "views"),
    "magnitude": ("MGrid, on search images", "views"),
    "calibrate": ("predicting", "views"),
    "targets": ("predicting the images without labels", "views"),
    "teach": ("training", "images"),
    "evaluate distilled": ("the same with the new weights", "views"),
}
"""The title of each stage of a search and its follow-up, and the unit that it counts."""

ProgressChoice = bool | StageProgress | None
"""Bars (True or None), nothing (False), or a function to report to."""


class ProgressCallback(Protocol):
    """A `Progress` function that can also show a short note."""

    def __call__(
        self, done: int, total: int, score: float | None = None, /, *, note: str = ""
    ) -> None:
        """Show the progress."""


class _Rate(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self.units = unit.removesuffix("s"), unit

    def render(self, task: Task) -> Text:
        """Show the speed, in units per second."""
        speed = task.finished_speed or task.speed
        rate = "" if speed is None else wording.count(round(speed), *self.units)
        return Text(rate and f"{rate}/s", style="dim")


@contextmanager
def progress_bar(
    description: str, unit: str = "images", objective: str = "cll"
) -> Iterator[ProgressCallback]:
    """Show a bar with speed and time left on stderr; yields the function to report to.

    A score is labelled with the `objective`. If stderr is not a terminal, as in a log, a line is
    printed every half minute instead.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _Rate(unit),
        TimeRemainingColumn(elapsed_when_finished=True),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(
        *columns, console=messages, disable=messages.is_jupyter and not _is_live()
    ) as progress:
        task = progress.add_task(escape(description), total=None, note="")
        log = _Log()

        def update(done: int, total: int, score: float | None = None, /, *, note: str = "") -> None:
            note = note if score is None else score_note(objective, score)
            progress.update(task, completed=done, total=total, note=escape(note))
            if not _is_live() and log.is_due(done, total):
                say(f"{description}: {log.line(done, total)}")

        yield update


@contextmanager
def stage_bars(
    named: Callable[[str], tuple[str, str]], objective: str = "cll"
) -> Iterator[StageProgress]:
    """Show a bar for each stage, one at a time; `named` returns its title and its unit."""
    with bars_in_turn() as bar:

        def update(stage: str, done: int, total: int, score: float | None = None, /) -> None:
            bar(stage, *named(stage), objective)(done, total, score)

        yield update


@contextmanager
def bars_in_turn() -> Iterator[Callable[..., ProgressCallback]]:
    """Yield a function that returns the bar of a key; its first call for a key ends the bar before.

    Its arguments are the key and then those of `progress_bar`.
    """
    with ExitStack() as stack:
        bars: dict[Hashable, ProgressCallback] = {}

        def bar(key: Hashable, *how: str) -> ProgressCallback:
            if key not in bars:
                stack.close()
                bars[key] = stack.enter_context(progress_bar(*how))
            return bars[key]

        yield bar


def score_note(objective: str, score: float) -> str:
    """Return the score so far, for a bar: `cLL −0.2134 on the images searched`."""
    name = "cLL" if objective == "cll" else objective
    return f"{name} {score:.4f} on the images searched".replace("-", "−")


class _Log:
    """Decides when to print a line of progress if there is no terminal, and writes it."""

    def __init__(self) -> None:
        self.began = self.last = time.monotonic()
        self.first = 0  # work of an earlier run does not count for the speed
        self.total: int | None = None

    def is_due(self, done: int, total: int) -> bool:
        """Return whether the last line is old enough; the end has a line of its own."""
        if total != self.total:  # the first call, or another stage of the same work
            self.began, self.first, self.total = time.monotonic(), done, total
        if done >= total or time.monotonic() - self.last < LOG_SECONDS:
            return False
        self.last = time.monotonic()
        return True

    def line(self, done: int, total: int) -> str:
        """Return the progress and the time left."""
        text = f"{done:,} of {total:,} ({100 * done / total:.0f} %)"
        made = done - self.first
        if made <= 0:
            return text
        left = (time.monotonic() - self.began) * (total - done) / made
        return f"{text}, about {wording.duration(left)} left"


def search_bars(objective: str = "cll") -> AbstractContextManager[StageProgress]:
    """Show one progress bar per stage of a search."""
    return stage_bars(STAGES.__getitem__, objective)


def chosen_bars(
    progress: ProgressChoice, objective: str = "cll"
) -> AbstractContextManager[StageProgress | None]:
    """Return what a Python caller asked for: bars, nothing, or the caller's own function."""
    if callable(progress):
        return nullcontext(progress)
    return search_bars(objective) if is_shown(progress) else nullcontext()


def is_shown(progress: ProgressChoice) -> bool:
    """Whether messages are printed."""
    return progress is None or progress is True


def say(text: str) -> None:
    """Print a message on stderr, apart from the results."""
    print_prose(messages, for_terminal(text))


def _is_live() -> bool:
    """Whether bars can be updated; in a notebook, rich needs ipywidgets for that."""
    if messages.is_jupyter:
        return find_spec("ipywidgets") is not None
    return messages.is_terminal
