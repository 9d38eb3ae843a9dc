"""Callbacks that report progress, of one form for the whole project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, Protocol, TypeAlias

_Rest = ParamSpec("_Rest")

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the units done and their total."""

StepProgress: TypeAlias = Callable[[int, int, float], None]
"""Called with the steps of a selection done, their total, and the score so far."""


class StageProgress(Protocol):
    """Called with a stage of the work, its units done, their total, and its score if it has one."""

    def __call__(self, stage: str, done: int, total: int, score: float | None = None, /) -> None:
        """Report the progress of a stage."""


class _OneStage(Protocol):
    """Serves as `Progress` and as `StepProgress`."""

    def __call__(self, done: int, total: int, score: float | None = None, /) -> None:
        """Report the progress."""


def stage_of(progress: StageProgress | None, stage: str) -> _OneStage | None:
    """Return a callback that reports to `progress` as this stage of the work."""
    if progress is None:
        return None
    return lambda done, total, score=None: progress(stage, done, total, score)


def part_of(
    progress: Callable[Concatenate[int, int, _Rest], None] | None, before: int, total: int
) -> Callable[Concatenate[int, int, _Rest], None] | None:
    """Return a callback for a part of the work that begins after `before` of `total` units."""
    if progress is None:
        return None

    def report(done: int, _: int, /, *rest: _Rest.args, **named: _Rest.kwargs) -> None:
        progress(before + done, total, *rest, **named)

    return report


@dataclass
class ProgressCount:
    """Counts and reports the units that are done."""

    total: int
    report: Progress | None
    done: int = 0

    def add(self, units: int) -> None:
        """Count more units as done."""
        self.done += units
        if self.report is not None:
            self.report(self.done, self.total)
