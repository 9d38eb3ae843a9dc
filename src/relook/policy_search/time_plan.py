"""A search that fits the time there is: how many candidates and images it can have.

Seconds of a pass are measured, sizes follow from them, and a run keeps what was planned: times
differ from call to call, but a run that goes on, or is repeated, must not. Candidates come in
rounds, the most promising first and each complete on all search images, so that a search can end
early: how many there were is decided once, and kept in the plan too.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from relook.errors import RelookError, RunError, unknown_name
from relook.foundation.wording import (
    at_view_temperature,
    count,
    duration,
    plain,
    signed,
    views_text,
)
from relook.io.fingerprint import JSON
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.numerics.arrays import FloatArray
from relook.numerics.calibration import fit_temperature, prefix_log_probs, temper
from relook.numerics.intervals import group_numbers, mean_and_error
from relook.numerics.metrics import per_image_log_likelihood
from relook.policy_search.job import FEW_IMAGES, SearchJob, Size
from relook.policy_search.pool_predictions import PoolPredictions, select_from_pool
from relook.policy_search.settings import SearchSettings
from relook.predictions.model_calls import current_engine
from relook.predictions.store import Predictions, PredictionStore
from relook.selection.record import Log, Selected

EFFORTS = {"quick": 120.0, "normal": 900.0, "thorough": 3600.0}
"""Names for sensible times, in seconds."""

NORMAL = EFFORTS["normal"]
LARGER_POOL = 240
"""Candidates of a conservative search that has more than the normal time, at most."""

TIME_KEYWORDS = ("time", "effort", "plan", "finish")

# Sizes that a search is cut down to where time is short, in their order: images beyond the first
# thousands narrow intervals, and candidates beyond the quasi-random crops add less than these.
# With as many search images as classes there is one of each; fewer are the last resort.
# Fewer than FEW_IMAGES choose no borders and mirror images either, which takes passes.
_LEAST = (16, 150, 150)
_WAY = (
    (80, None, None),
    (80, 2000, 1000),
    (40, 1000, 500),
    (16, FEW_IMAGES, FEW_IMAGES),
)
_STEPS = 100  # between two of them
_MARGIN = 0.85  # of the time that a plan may fill: passes slow down as machines get busy
_SELECTED_A_SECOND = 3e7  # predictions × steps of a selection, where others work too
_BESIDE = 5.0  # seconds for what is compiled at the first step, intervals and files
_OTHER = "use another directory"
_PARTS = re.compile(
    r"(?:([0-9.]+)\s*h)?\s*(?:([0-9.]+)\s*m(?:in)?)?\s*(?:([0-9.]+)\s*s?)?", re.IGNORECASE
)


def seconds_of(given: str | float, option: str = "time") -> float:
    """Read `90s`, `15m`, `1h30m` or a number of seconds."""
    wrong = RelookError(f"{option}: expected a time like 90s, 15m or 1h30m, got {given!r}")
    found = _PARTS.fullmatch(str(given).strip())
    if found is None or isinstance(given, bool):
        raise wrong
    try:
        parts = [float(part or 0) for part in found.groups()]
    except ValueError:
        raise wrong from None
    seconds = 3600 * parts[0] + 60 * parts[1] + parts[2]
    if not 0 < seconds < math.inf:
        raise wrong
    return seconds


def sizes(whole: Size, classes: int, *, free: Sequence[bool]) -> list[Size]:
    """Return what a search can be cut down to, largest first; what is not `free` stays."""
    found, upper = [whole], whole
    ways = [
        (candidates, search and max(search, classes), proof) for candidates, search, proof in _WAY
    ]
    for way in (*ways, _LEAST):
        lower = Size(
            *(
                before if wanted is None or not may else min(before, wanted)
                for before, wanted, may in zip(upper, way, free, strict=True)
            )
        )
        for step in range(1, _STEPS + 1):
            pairs = zip(upper, lower, strict=True)
            found.append(Size(*(_between(one, other, step / _STEPS) for one, other in pairs)))
        upper = lower
    return found


def _between(upper: int, lower: int, share: float) -> int:
    """Return a number from `upper` down to `lower`, by equal factors."""
    return lower if share == 1 or not lower else int(lower * (upper / lower) ** (1 - share))


def fitted(ways: Sequence[Size], seconds: Callable[[Size], float], limit: float) -> Size:
    """Return the largest of some sizes, which fall, that takes no longer than the limit.

    Where none does, it is the last.
    """
    return next((size for size in ways if seconds(size) <= limit), ways[-1])


@dataclass(frozen=True)
class TimePlan:
    """What was planned for a run: sizes, for how many seconds, and the speed that they follow from.

    `kept` is how many distinct candidates, the first, there was time for; None: all of them.
    """

    pool_size: int | None
    holdout: float
    left_out: float
    engine: str
    size: Size
    seconds: float | None = None
    seconds_a_pass: float | None = None
    estimate: float | None = None
    kept: int | None = None

    @property
    def for_time(self) -> str:
        """The time that there was, in words."""
        return "with no time" if self.seconds is None else f"for {duration(self.seconds)}"

    def __str__(self) -> str:
        if self.seconds is None or self.estimate is None or not self.seconds_a_pass:
            return f"Plan: {self._sizes}"
        return f"Plan {self.for_time}: {self._sizes}: {self._speed}"

    @property
    def _sizes(self) -> str:
        candidates, images = self.size.candidates, self.size.search
        size = f"{count(candidates, 'candidate')} × {count(images, 'image')}"
        return f"{size}, then {self.size.proof:,} held-out images"

    @property
    def _speed(self) -> str:
        passes = 1 / (self.seconds_a_pass or 1)
        return f"about {duration(self.estimate or 0)} at {passes:,.0f} passes/s"

    def too_long(self, *, with_split: bool) -> str | None:
        """Say that not even the least plan fits, if that is so, and what takes half as much.

        `with_split`: whether the images can be split otherwise.
        """
        if self.seconds is None or (self.estimate or 0) <= self.seconds:
            return None
        less = {"pool_size": str(max(2, self.size.candidates // 2))}
        if with_split:
            less["split"] = f"{max(2, self.size.search // 2)}:{max(4, self.size.proof // 2)}"
        keywords = ", ".join(
            f"{name}={repr(value) if name == 'split' else value}" for name, value in less.items()
        )
        options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in less.items())
        return (
            f"{duration(self.seconds)} is too short: the smallest plan takes {self._speed} "
            f"({self._sizes}), and runs all the same; for less: {keywords} ({options})"
        )

    def applied(self, settings: SearchSettings, wish: TimeWish) -> SearchSettings:
        """Return settings with what is planned, where nothing else was asked for."""
        own: dict[str, Any] = {"pool_size": self.pool_size} if wish.pool_free else {}
        if wish.images_free:
            own |= {"holdout": self.holdout, "left_out": self.left_out}
        if wish.repeated is not None and settings.accelerate == "auto":
            own["accelerate"] = self.engine
        return replace(settings, **own)

    def to_json(self) -> dict[str, JSON]:
        """Return the plan for the run's record."""
        return {**asdict(self), "size": self.size._asdict()}


PLANS = Kind(TimePlan, "relook-plan", version=1, what="a search's plan", command="search")


@dataclass(frozen=True)
class TimeWish:
    """What a caller says about time: how much there is, a plan to repeat, or to finish now.

    `asked` is whether anybody did: else `seconds` are the normal ones, or None where sizes were
    given. `pool_free` and `images_free` say what nobody has decided.
    """

    seconds: float | None = None
    asked: bool = False
    repeated: Path | None = None
    finish: bool = False
    pool_free: bool = True
    images_free: bool = True
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def of(cls, given: dict[str, Any], split: str | None) -> TimeWish:
        """Take what is said about time out of a search's keywords."""
        asked = {name: given.pop(name, None) for name in TIME_KEYWORDS}
        named, effort, plan = asked["time"], asked["effort"], asked["plan"]
        if sum(one is not None for one in (named, effort, plan)) > 1:
            raise RelookError("expected one of time, effort and plan, got more: give one")
        if effort is not None and effort not in EFFORTS:
            raise unknown_name("effort", effort, tuple(EFFORTS))
        seconds = seconds_of(named, "time") if named is not None else EFFORTS.get(effort)
        pool_free = given.get("pool_size") is None
        parted = split is not None or given.get("holdout") is not None
        if seconds is None and plan is None and pool_free and not parted:
            seconds = None if given.get("strategy") == "paper" else NORMAL
        return cls(
            seconds,
            named is not None or effort is not None,
            None if plan is None else Path(plan),
            bool(asked["finish"]),
            pool_free,
            not parted and not given.get("cross_fit"),
        )

    def known_plan(self, run: Path | None) -> TimePlan | None:
        """Return the plan that a run was begun with or that is to be repeated, if there is one."""
        directory = None if run is None else RunDirectory(run)
        began = None
        if directory is not None and directory.plan.is_file():
            began = PLANS.read(directory.plan)
        if self.repeated is not None:
            wanted = PLANS.read(_plan_file(self.repeated))
            if began is not None and began != wanted:
                raise RunError(f"{run}: the run has another plan than {self.repeated}: {_OTHER}")
            return wanted
        begun = directory is not None and directory.settings.exists()
        if begun and self.asked and (began is None or self.seconds != began.seconds):
            then = "with no time" if began is None else began.for_time
            raise RunError(
                f"{run}: the run was begun {then}, got {duration(self.seconds or 0)}: leave the "
                f"time out to go on, or {_OTHER}"
            )
        return began

    def settled(self, settings: SearchSettings, plan: TimePlan | None) -> SearchSettings:
        """Return settings as a plan says, or else with the most that there may be time for."""
        if plan is not None:
            return plan.applied(settings, self)
        larger = self.pool_free and (self.seconds or 0) > NORMAL
        if not larger or settings.strategy != "conservative":
            return settings
        return replace(settings, pool_size=LARGER_POOL)

    def plan(self, job: SearchJob, engine: str) -> TimePlan:
        """Measure the passes of a job, and return what there is time for."""
        settings, pace, whole = job.settings, job.seconds_a_pass(), job.size
        free = (self.pool_free, self.images_free, self.images_free and job.test is None)
        spent = time.perf_counter() - self.started

        def seconds(size: Size) -> float:
            return spent + pace * job.passes_of(size).all + other_seconds(job, size)

        ways = sizes(whole, len(job.dataset.classes), free=free)
        limit = math.inf if self.seconds is None else _MARGIN * self.seconds
        size = fitted(ways, seconds, limit)
        holdout, left_out = settings.holdout, settings.left_out
        if size[1:] != whole[1:]:
            proof = size.proof if job.test is None else 0
            left_out = 1 - (size.search + proof) / len(job.dataset)
            holdout = proof / (size.search + proof) or holdout
        return TimePlan(
            settings.pool_size if size.candidates == whole.candidates else size.candidates,
            holdout,
            left_out,
            engine,
            size,
            self.seconds,
            pace,
            seconds(size),
        )


def _plan_file(path: Path) -> Path:
    file = RunDirectory(path).plan if path.is_dir() else path
    if not file.is_file():
        raise RelookError(f"plan: expected a run with a plan.json, or that file, got {path}")
    return file


def other_seconds(job: SearchJob, size: Size) -> float:
    """Return about how long all takes that is no pass, in more seconds than fewer."""
    classes = job.predictor.classes or len(job.dataset.classes)
    values = size.candidates * size.search * classes * job.settings.length
    return _BESIDE + values / _SELECTED_A_SECOND


def has_rounds(job: SearchJob) -> bool:
    """Whether a search's candidates are in order of promise, and kept as they are predicted."""
    alone = job.settings.in_rounds and current_engine() is None
    return alone and job.pool.defaults > 0 and job.directory is not None


@dataclass
class Rounds:
    """When a search's rounds end; where it is `timed`, by the clock. `plan` has what was kept."""

    job: SearchJob
    wish: TimeWish
    plan: TimePlan | None
    engine: str
    timed: bool
    log: Log | None = None
    now: Callable[[], float] = time.perf_counter
    _ends: list[float] = field(default_factory=list, init=False)

    @property
    def is_short(self) -> bool:
        """Whether somebody gave a time, or what it leaves is not all there was to try."""
        return self.wish.asked or self._kept is not None

    @property
    def _kept(self) -> int | None:
        return None if self.plan is None else self.plan.kept

    def go_on(self, so_far: PredictionStore | None, stored: bool) -> bool:
        """Return whether the next round is made, as `fill_store` asks."""
        if so_far is None:
            if self.wish.finish and not stored:
                raise nothing_to_finish(self.job.directory)
            self._ends = [self.now()]
            return True
        self._ends.append(self.now())
        done = so_far.plan.views
        if self._kept is not None:
            return done < self._kept
        first = done == so_far.plan.group and not stored
        if first and self.log is not None and not self.job.plan.mapped and not self.wish.finish:
            self.log(_answer(self.job, so_far))
        if stored or not (self.wish.finish or (self.timed and self._is_late(so_far))):
            return True
        settings = self.job.settings
        sized = settings.pool_size, settings.holdout, settings.left_out, self.engine, self.job.size
        self.plan = replace(self.plan or TimePlan(*sized), kept=done)
        PLANS.write(RunDirectory(self.job.directory or "").plan, self.plan)
        if self.log is not None:
            why = "as asked" if self.wish.finish else "as the time is up"
            self.log(f"finishing with {done} of {len(self.job.views)} candidates, {why}")
        return False

    def _is_late(self, so_far: PredictionStore) -> bool:
        """Whether another round, the selection and the proof would not end in time."""
        if self.wish.seconds is None:
            return False
        plan, (began, *_, before, now) = so_far.plan, (self._ends[0], *self._ends)
        # The last round's pace too: other work may have begun since.
        pace = max((now - began) / plan.views, (now - before) / plan.group) / plan.images
        candidates = min(plan.group, len(self.job.views) - plan.views)
        rest = pace * (candidates * plan.images + self.job.passes.proof)
        rest += other_seconds(self.job, self.job.size)
        return now - self.wish.started + rest > self.wish.seconds


def nothing_to_finish(run: Path | None) -> RelookError:
    """Return the error where a run without a complete round is to be finished."""
    return RelookError(
        f"finish: expected a complete round of candidates in {run}, got none: run the same "
        "command without it"
    )


def what_more_buys(job: SearchJob, predicted: PoolPredictions, selected: Selected) -> str:
    """Say what the second half of the candidates gained, since more will hardly gain as much."""
    made = len(predicted.candidates)
    half = Predictions.of(selected.log_probs[: made // 2])
    fewer = _selected(job, PoolPredictions(predicted.candidates[: made // 2], half))
    gains = _likelihoods(job, selected) - _likelihoods(job, fewer)
    groups = None if job.groups is None else group_numbers(job.groups, len(gains))
    gain, error = mean_and_error(gains, np.ones(len(gains)), groups)
    changed = f"the cLL by {signed(gain, 4)} ± {plain(error, 4)} on the search images; "
    changed += "as many again probably gain less"
    if max(abs(gain), error) < 0.00005:
        changed = "nothing; as many again probably change nothing either"
    last = f"the last {made - made // 2} of {made} candidates"
    return f"what more time would buy: {last} have changed {changed}"


def _likelihoods(job: SearchJob, selected: Selected) -> FloatArray:
    """Return the calibrated log-likelihood of each search image by what was selected."""
    picks, temperature = selected.result.picks, selected.result.view_temperature
    entries = (temper(selected.log_probs[pick], temperature) for pick in picks)
    (average,) = prefix_log_probs(entries, [len(picks)])
    fitted = fit_temperature(average, job.labels, view_temperature=temperature)
    return per_image_log_likelihood(temper(average, fitted), job.labels)


def _answer(job: SearchJob, store: PredictionStore) -> str:
    """Select from the first round alone, and say what that gives."""
    candidates = np.array([view.index for view in job.views[: store.plan.views]])
    predictions = Predictions(store.plan.shape, store.dtype, store.read_all)
    found = _selected(job, PoolPredictions(candidates, predictions)).result
    views = views_text(len(set(found.picks)))
    return (
        f"so far, from {len(candidates)} of {len(job.views)} candidates: {views}"
        f"{at_view_temperature(found.view_temperature)}, cLL {plain(found.scores[-1], 4)} on the "
        "search images"
    )


def _selected(job: SearchJob, part: PoolPredictions) -> Selected:
    """Select from a part of the pool, without a trace."""
    return select_from_pool(replace(job, directory=None), part, None, None)
