"""Fit a search into the available time: how many candidates and images it gets.

The speed of a pass is measured and decides the sizes. Measurements vary, but a run that is resumed
or repeated must not, so a run stores its plan. Candidates are predicted in rounds, the most
promising first and each round on all search images, so that a search can stop early; how many
candidates it stopped at is stored in the plan too.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from relook.errors import RelookError, RunError, unknown_name
from relook.foundation.wording import (
    count,
    duration,
)
from relook.io.fingerprint import JSON
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.policy_search.job import FEW_IMAGES, SearchJob, Size
from relook.policy_search.settings import SearchSettings

EFFORTS = {"quick": 120.0, "normal": 900.0, "thorough": 3600.0}
"""Named times, in seconds."""

_NORMAL = EFFORTS["normal"]
LARGER_POOL = 240
"""Candidates of a conservative search that has more than the normal time, at most."""

TIME_KEYWORDS = ("time", "effort", "plan", "finish")

# A search that is short of time is cut down to these sizes in turn: images beyond the first
# thousands only narrow intervals, and candidates beyond the quasi-random crops add less than
# images. At least one search image per class is kept until the last resort, the smallest sizes.
# Below FEW_IMAGES no passes go into choosing borders and mirror images.
_CUTS: tuple[tuple[int, int | None, int | None], ...] = (
    (80, None, None),
    (80, 2000, 1000),
    (40, 1000, 500),
    (16, FEW_IMAGES, FEW_IMAGES),
)
_SMALLEST = (16, 150, 150)
_STEPS = 100  # from one cut to the next
_USABLE_SHARE = 0.85  # of the time: passes slow down when the machine gets busy
_SELECTION_RATE = 3e7  # predictions × steps a second, on a machine with other work
_FIXED_SECONDS = 5.0  # for compiling at the first step, intervals and files
_DURATION = re.compile(
    r"(?:([0-9.]+)\s*h)?\s*(?:([0-9.]+)\s*m(?:in)?)?\s*(?:([0-9.]+)\s*s?)?", re.IGNORECASE
)


def parse_duration(given: str | float) -> float:
    """Return the seconds of `90s`, `15m`, `1h30m` or a number of seconds."""
    error = RelookError(f"time: expected a time like 90s, 15m or 1h30m, got {given!r}")
    match = _DURATION.fullmatch(str(given).strip())
    if match is None or isinstance(given, bool):
        raise error
    try:
        hours, minutes, seconds = (float(part or 0) for part in match.groups())
    except ValueError:
        raise error from None
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        raise error
    return total


def smaller_sizes(whole: Size, classes: int, *, free: Sequence[bool]) -> list[Size]:
    """Return the sizes that a search can be cut down to, largest first.

    `free` says which of candidates, search images and held-out images may be cut.
    """
    cuts = [
        (candidates, search and max(search, classes), proof) for candidates, search, proof in _CUTS
    ]
    sizes, upper = [whole], whole
    for cut in (*cuts, _SMALLEST):
        limits = zip(upper, cut, free, strict=True)
        lower = Size(
            *(min(n, most) if most and may_shrink else n for n, most, may_shrink in limits)
        )
        for step in range(1, _STEPS + 1):
            pairs = zip(upper, lower, strict=True)
            sizes.append(Size(*(_between(*pair, step / _STEPS) for pair in pairs)))
        upper = lower
    return sizes


def _between(upper: int, lower: int, share: float) -> int:
    """Return a number from `upper` (share 0) to `lower` (share 1), on a logarithmic scale."""
    return lower if share == 1 or not lower else int(lower * (upper / lower) ** (1 - share))


def largest_within(sizes: Sequence[Size], seconds: Callable[[Size], float], limit: float) -> Size:
    """Return the first of some falling sizes that takes no longer than the limit, or the last."""
    return next((size for size in sizes if seconds(size) <= limit), sizes[-1])


@dataclass(frozen=True)
class TimePlan:
    """The sizes planned for a run, for how many seconds, and the speed that they follow from.

    `kept` is the number of distinct candidates that there was time for, always the first ones;
    None: all of them. `rest` is the share of the `estimate`, in seconds, that is not passes.
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
    rest: float | None = None

    @property
    def time_text(self) -> str:
        """The time limit in words."""
        return "with no time" if self.seconds is None else f"for {duration(self.seconds)}"

    def __str__(self) -> str:
        if self.seconds is None or self.estimate is None or not self.seconds_a_pass:
            return f"Plan: {self._sizes_text}"
        return f"Plan {self.time_text}: {self._sizes_text}: {self._speed_text}"

    @property
    def _sizes_text(self) -> str:
        candidates, images = self.size.candidates, self.size.search
        size = f"{count(candidates, 'candidate')} × {count(images, 'image')}"
        return f"{size}, then {self.size.proof:,} held-out images"

    @property
    def _speed_text(self) -> str:
        speed = f"{1 / (self.seconds_a_pass or 1):,.0f} passes/s"
        rest = "" if self.rest is None else f", with {duration(self.rest)} for the rest"
        return f"about {duration(self.estimate or 0)} at {speed}{rest}"

    def overrun_note(self, *, can_split: bool) -> str | None:
        """Return a note if even the smallest plan takes too long, with options for half of it.

        `can_split`: whether the user can choose another split of the images.
        """
        if self.seconds is None or (self.estimate or 0) <= self.seconds:
            return None
        candidates = max(2, self.size.candidates // 2)
        keywords, options = f"pool_size={candidates}", f"--pool-size {candidates}"
        if can_split:
            split = f"{max(2, self.size.search // 2)}:{max(4, self.size.proof // 2)}"
            keywords, options = f"{keywords}, split={split!r}", f"{options} --split {split}"
        limit, needed = duration(self.seconds), duration(self.estimate or 0)
        return (
            f"{limit} {'may be' if limit == needed else 'is'} too short: the smallest plan takes "
            f"{self._speed_text} "
            f"({self._sizes_text}), and runs all the same; for less: {keywords} ({options})"
        )

    def apply(self, settings: SearchSettings, request: TimeRequest) -> SearchSettings:
        """Return settings with the planned values for all that the caller has left open."""
        planned: dict[str, Any] = {"pool_size": self.pool_size} if request.pool_free else {}
        if request.images_free:
            planned |= {"holdout": self.holdout, "left_out": self.left_out}
        if request.repeat is not None and settings.accelerate == "auto":
            planned["accelerate"] = self.engine
        return replace(settings, **planned)

    def to_json(self) -> dict[str, JSON]:
        """Return the plan for the run's record."""
        return {**asdict(self), "size": self.size._asdict()}


PLANS = Kind(TimePlan, "relook-plan", version=1, what="a search's plan", command="search")


@dataclass(frozen=True)
class TimeRequest:
    """The caller's limit on time: seconds, a plan to `repeat`, or to `finish` a run now.

    Without an `explicit` time, `seconds` is the normal one, or None if sizes were given.
    `pool_free` and `images_free`: the plan may choose the pool's size, and the images.
    """

    seconds: float | None = None
    explicit: bool = False
    repeat: Path | None = None
    finish: bool = False
    pool_free: bool = True
    images_free: bool = True
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def from_keywords(cls, keywords: dict[str, Any], split: str | None) -> TimeRequest:
        """Take the keywords about time out of a search's keywords."""
        limit, effort, plan, finish = (keywords.pop(name, None) for name in TIME_KEYWORDS)
        if sum(value is not None for value in (limit, effort, plan)) > 1:
            raise RelookError("expected one of time, effort and plan, got more: give one")
        if effort is not None and effort not in EFFORTS:
            raise unknown_name("effort", effort, tuple(EFFORTS))
        seconds = parse_duration(limit) if limit is not None else EFFORTS.get(effort)
        pool_free = keywords.get("pool_size") is None
        has_split = split is not None or keywords.get("holdout") is not None
        if seconds is None and plan is None and pool_free and not has_split:
            seconds = None if keywords.get("strategy") == "paper" else _NORMAL
        return cls(
            seconds,
            explicit=limit is not None or effort is not None,
            repeat=None if plan is None else Path(plan),
            finish=bool(finish),
            pool_free=pool_free,
            images_free=not has_split and not keywords.get("cross_fit"),
        )

    def existing_plan(self, run: Path | None) -> TimePlan | None:
        """Return the plan that the run was begun with, or the one to repeat, if there is one."""
        stored, begun = None, False
        if run is not None:
            directory = RunDirectory(run)
            stored = PLANS.read(directory.plan) if directory.plan.is_file() else None
            begun = directory.settings.exists()
        if self.repeat is not None:
            wanted = PLANS.read(_plan_file(self.repeat))
            if stored is not None and stored != wanted:
                raise RunError(
                    f"{run}: the run has another plan than {self.repeat}: use another directory"
                )
            return wanted
        if begun and self.explicit and (stored is None or self.seconds != stored.seconds):
            before = "with no time" if stored is None else stored.time_text
            raise RunError(
                f"{run}: the run was begun {before}, got {duration(self.seconds or 0)}: leave the "
                "time out to go on, or use another directory"
            )
        return stored

    def initial_settings(self, settings: SearchSettings, plan: TimePlan | None) -> SearchSettings:
        """Return the settings of an existing plan, or else the largest that there may be time for.

        The sizes of a new plan are cut down from these.
        """
        if plan is not None:
            return plan.apply(settings, self)
        larger = self.pool_free and (self.seconds or 0) > _NORMAL
        if not larger or settings.strategy != "conservative":
            return settings
        return replace(settings, pool_size=LARGER_POOL)

    def make_plan(self, job: SearchJob, engine: str) -> TimePlan:
        """Measure a job's passes, and plan the sizes that there is time for."""
        settings, pace, whole = job.settings, job.seconds_a_pass(), job.size
        free = (self.pool_free, self.images_free, self.images_free and job.test is None)
        spent = time.perf_counter() - self.started

        def rest(size: Size) -> float:
            return spent + overhead_seconds(job, size)

        def seconds(size: Size) -> float:
            return pace * job.passes_of(size).all + rest(size)

        sizes = smaller_sizes(whole, len(job.dataset.classes), free=free)
        limit = math.inf if self.seconds is None else _USABLE_SHARE * self.seconds
        size = largest_within(sizes, seconds, limit)
        holdout, left_out = settings.holdout, settings.left_out
        if size[1:] != whole[1:]:
            proof = size.proof if job.test is None else 0
            left_out = 1 - (size.search + proof) / len(job.dataset)
            holdout = proof / (size.search + proof) or holdout
        pool_size = settings.pool_size if size[0] == whole[0] else size.candidates
        return TimePlan(
            pool_size,
            holdout,
            left_out,
            engine,
            size,
            self.seconds,
            pace,
            estimate=seconds(size),
            rest=rest(size),
        )


def left_out_note(job: SearchJob, plan: TimePlan | None, request: TimeRequest | None) -> str:
    """Say how many images the search leaves out, and why."""
    why = "split (--split) takes only the others"
    if plan is not None and plan.seconds is not None and (request is None or request.images_free):
        why = f"{duration(plan.seconds)} is too short for them (time, --time)"
    return f"{job.left_out:,} of {len(job.dataset):,} images are left out: {why}"


def _plan_file(path: Path) -> Path:
    file = RunDirectory(path).plan if path.is_dir() else path
    if not file.is_file():
        raise RelookError(f"plan: expected a run with a plan.json, or that file, got {path}")
    return file


def overhead_seconds(job: SearchJob, size: Size) -> float:
    """Estimate, rather high, the seconds that a search takes apart from its passes."""
    classes = job.predictor.classes or len(job.dataset.classes)
    values = size.candidates * size.search * classes * job.settings.length
    return _FIXED_SECONDS + values / _SELECTION_RATE
