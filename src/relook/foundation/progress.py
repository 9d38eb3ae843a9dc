"""How work says how far it is: one way to report for the whole project."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, Protocol, TypeAlias

_Rest = ParamSpec("_Rest")

Progress: TypeAlias = Callable[[int, int], None]
"""Called with the units done and their total."""

StepProgress: TypeAlias = Callable[[int, int, float], None]
"""Called with the steps of a selection, their total, and the score so far."""


class StageProgress(Protocol):
    """Called with a stage of the work, its units done, their total, and the score if it has one."""

    def __call__(self, stage: str, done: int, total: int, score: float | None = None, /) -> None:
        """Take how far the stage is."""


class _OneStage(Protocol):
    """What counts units and what makes steps can both report to."""

    def __call__(self, done: int, total: int, score: float | None = None, /) -> None:
        """Take how far it is."""


def stage_of(progress: StageProgress | None, stage: str) -> _OneStage | None:
    """Report work as one stage of the whole."""
    if progress is None:
        return None
    return lambda done, total, score=None: progress(stage, done, total, score)


def part_of(
    progress: Callable[Concatenate[int, int, _Rest], None] | None, before: int, total: int
) -> Callable[Concatenate[int, int, _Rest], None] | None:
    """Report a part of the work, with `before` units done ahead of it, as part of the whole."""
    if progress is None:
        return None

    def report(done: int, _: int, /, *rest: _Rest.args, **named: _Rest.kwargs) -> None:
        progress(before + done, total, *rest, **named)

    return report


@dataclass
class ProgressCount:
    """Units that are done, reported as they grow."""

    total: int
    report: Progress | None
    done: int = 0

    def add(self, units: int) -> None:
        """Count more units as done."""
        self.done += units
        if self.report is not None:
            self.report(self.done, self.total)
