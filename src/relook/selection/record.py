"""A selection that can be stopped and continued, by a trace of its picks.

The trace is one JSON file, written atomically: at most once a second, when the selection ends, and
when it is interrupted. A selection continued from it ends in the same result, byte for byte.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numpy.typing import ArrayLike

from relook.errors import RelookError, RunError
from relook.foundation.progress import StepProgress
from relook.io.fingerprint import fingerprint
from relook.io.records import Kind
from relook.numerics.arrays import Labels, LogProbs
from relook.predictions.store import Predictions
from relook.selection import SearchResult, greedy_search
from relook.selection.greedy import Pick
from relook.selection.objectives import UserObjective
from relook.selection.plan import SelectionPlan, is_compact, plan_selection, selection_limit
from relook.version import __version__

FORMAT = "relook-selection"
TRACE = "selection.json"
"""The name of the trace in a run directory."""

_SECONDS = 1.0  # between two writes

Log = Callable[[str], None]


@dataclass(frozen=True)
class Selection:
    """The predictions and settings that decide the picks; see `greedy_search`."""

    predictions: Predictions
    labels: Labels
    length: int
    objective: str | UserObjective = "cll"
    balanced: bool = False
    defaults: Sequence[int] = ()
    in_order: bool = True
    groups: ArrayLike | None = None
    preselected: bool = False
    view_temperature: float | None = None


@dataclass(frozen=True)
class Selected:
    """The result of a selection, and the predictions that it is from."""

    result: SearchResult
    log_probs: LogProbs


@dataclass(frozen=True)
class Trace:
    """The picks so far, the selection that they belong to, and its memory limit."""

    belongs_to: str
    memory: int = 0
    picks: tuple[Pick, ...] = ()


TRACES = Kind(Trace, FORMAT, version=2, what="a selection's trace", checksum=True)


def selection_identity(selection: Selection, predictions: object) -> str | None:
    """Return a fingerprint of everything that decides the picks, except their number.

    `predictions` identifies the predictions, as `fingerprint` takes it. None if the objective is
    a function, which may have changed unnoticed.
    """
    objective = selection.objective
    if not isinstance(objective, str):
        return None
    return fingerprint(
        FORMAT, __version__, predictions, selection.labels, objective, selection.balanced
    )


def kept_limit(path: Path | None) -> int | None:
    """Return the memory limit of the trace at `path`, if there is one."""
    if path is None or not path.is_file():
        return None
    try:
        return TRACES.read(path).memory or None
    except RelookError:
        return None


def plan_of(selection: Selection, memory: int | None, path: Path | None = None) -> SelectionPlan:
    """Plan a selection within `memory` bytes (default: a share of what is free).

    If the limit can decide picks, it stays that of the trace at `path`.
    """
    shape, conservative = selection.predictions.shape, bool(selection.defaults)
    compact = is_compact(shape, selection.objective, conservative=conservative)
    return plan_selection(
        shape,
        selection.predictions.dtype,
        selection.objective,
        selection_limit(memory, kept_limit(path) if compact else None),
        on_disk=selection.predictions.map is not None,
        conservative=conservative,
        view_temperature=selection.view_temperature,
    )


def select(
    selection: Selection,
    plan: SelectionPlan,
    *,
    identity: str | None = None,
    path: Path | None = None,
    progress: StepProgress | None = None,
    log: Log | None = None,
) -> Selected:
    """Run a greedy search as planned.

    With a `path`, the trace is kept there, and a selection of the same `identity` continues from
    it. `log` is called with a line or two for people before the search starts.
    """
    say = log or (lambda line: None)
    length, defaults, predictions = selection.length, selection.defaults, selection.predictions
    trace = Trace(identity or "")
    if path is not None and identity is not None:
        trace = _read_trace(path, trace, predictions.shape[0], say)
        if plan.compact and trace.picks and trace.memory != plan.limit:
            raise RunError(
                f"{path} was begun with a memory limit of {trace.memory:,} bytes, got "
                f"{plan.limit:,}: with this many classes the limit can decide picks; leave "
                "memory out to go on, or delete that file"
            )
    say(f"selection: {plan}")
    if 0 < len(trace.picks) < length:
        say(f"selection: going on after {len(trace.picks)} steps, kept in {path}")
    load = predictions.map if plan.mapped and predictions.map is not None else predictions.load
    log_probs = load()
    if len(trace.picks) >= length and not defaults:  # a conservative one also has a threshold
        kappa = selection.view_temperature or 1.0
        return Selected(
            replace(SearchResult.of(trace.picks[:length]), view_temperature=kappa), log_probs
        )
    recorder = _Recorder(path, replace(trace, memory=plan.limit))
    try:
        result = greedy_search(
            log_probs,
            selection.labels,
            length,
            selection.objective,
            balanced=selection.balanced,
            progress=progress,
            start=[pick.candidate for pick in trace.picks[:length]],
            memory=plan.beside,
            picked=recorder.add,
            defaults=defaults,
            in_order=selection.in_order,
            groups=selection.groups,
            preselected=selection.preselected,
            view_temperature=selection.view_temperature,
        )
    finally:
        recorder.write()
    return Selected(result, log_probs)


class _Recorder:
    def __init__(self, path: Path | None, trace: Trace) -> None:
        self._path, self._trace = path, trace
        self._written: Trace | None = None
        self._next = 0.0

    def add(self, pick: Pick) -> None:
        """Add the next pick."""
        self._trace = replace(self._trace, picks=(*self._trace.picks, pick))
        if time.monotonic() >= self._next:
            self.write()

    def write(self) -> None:
        """Write the trace, if it has new picks."""
        if self._path is None or self._trace is self._written or not self._trace.picks:
            return
        TRACES.write(self._path, self._trace)
        self._written, self._next = self._trace, time.monotonic() + _SECONDS


def _read_trace(path: Path, new: Trace, candidates: int, say: Log) -> Trace:
    """Return the trace at `path`, or the new one if there is none that fits."""
    if not path.exists():
        return new
    try:
        trace = TRACES.read(path)
    except RelookError:
        problem = "it is damaged or of another version"
    else:
        sound = all(0 <= p.candidate < candidates and p.temperature > 0 for p in trace.picks)
        if sound and trace.belongs_to == new.belongs_to:
            return trace
        problem = "it belongs to other predictions or settings"
        if trace.belongs_to == new.belongs_to:
            problem = "it names candidates that are not there, or impossible temperatures"
    say(f"{path} is not used ({problem}): selecting from the start")
    return new
