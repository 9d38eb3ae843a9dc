"""How many views fit into a time: measurements of the deployed model, and the choice."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from relook.errors import RelookError
from relook.foundation.wording import interval, plain, signed, views_text
from relook.io.fingerprint import fingerprint
from relook.io.records import Kind
from relook.numerics.intervals import Interval
from relook.policy import Policy
from relook.policy.file import policy_to_json
from relook.predictions.passes import timed_rounds

ROUNDS, FEW = 25, 3
"""The number of rounds for a median, and for a first estimate of it."""

ALLOWED = 1.05
"""The factor by which a file may exceed its budget when it is measured again."""

_SECONDS = 8.0
_STEPS = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500, 1000)
_UNITS = {"ms": 1.0, "s": 1000.0}


@dataclass(frozen=True)
class Limit:
    """The milliseconds that a call of the model may take, and the images in it."""

    milliseconds: float
    batch: int = 1

    @classmethod
    def read(cls, text: object, batch: int = 1) -> Limit:
        """Read a time with its unit: `40ms`, `0.2s`."""
        found = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)\s*", str(text))
        if found is None or not float(found[1]):
            raise RelookError(
                f"latency: expected a time with its unit, as 40ms or 0.2s, got {text!r}"
            )
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise RelookError(f"latency: expected a batch of at least 1 image, got {batch!r}")
        return cls(float(found[1]) * _UNITS[found[2]], batch)


@dataclass(frozen=True)
class Rung:
    """A method with a number of views, its held-out cLL and gain over the plain image, if known.

    `milliseconds` is the median of a call; None if it was not measured.
    """

    method: str
    label: str
    views: int
    cll: float | None = None
    over_plain: Interval | None = None
    milliseconds: float | None = None

    @property
    def worth(self) -> float:
        """The value by which the best is chosen."""
        return self.views if self.cll is None else self.cll

    @property
    def text(self) -> str:
        """The method and its views, in words."""
        views = f"{self.label}, {views_text(self.views)}"
        return "the plain image" if self.method == "plain" else views


@dataclass(frozen=True)
class Latency:
    """The measured rungs, the fewest views first; `chosen` is the place of the best that fits.

    Times are medians of calls, in milliseconds, with such images; `policy` is its fingerprint.
    `plain_advised`: a verdict recommends the plain image, so that nothing else was measured.
    """

    rungs: tuple[Rung, ...]
    chosen: int
    budget: float
    batch: int
    engine: str
    processor: str
    threads: int
    image: str
    policy: str
    plain_advised: bool = False

    @property
    def best(self) -> Rung:
        """The best rung within the budget."""
        return self.rungs[self.chosen]

    @property
    def where(self) -> str:
        """The set-up of the measurement, in words."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return (
            f"Medians of calls with {self.batch} {self.image}; {self.engine}, {threads}, "
            f"{self.processor}"
        )

    @property
    def sentence(self) -> str:
        """The result, in at most two sentences."""
        best = self.best
        text = f"Within {milliseconds(self.budget)}: {best.text}, {milliseconds(best.milliseconds)}"
        if best.cll is not None:
            text += f", cLL {plain(best.cll, 4)}"
        if best.over_plain is not None:
            gain = best.over_plain
            text += f" ({signed(gain.estimate, 4)} {interval(gain, 4)} over the plain image)"
        slower = [one for one in self.rungs if (one.milliseconds or 0) > self.budget]
        if self.plain_advised:
            text += (
                ", as the verdict recommends; more views were not timed: method='policy' (--method "
                "policy) finds how many fit"
            )
        if slower:
            text += f". Too slow: {slower[0].text}, {milliseconds(slower[0].milliseconds)}"
        return f"{text}."

    def further(self, place: int) -> float | None:
        """Return the milliseconds of each view more than in the rung before."""
        if place == 0:
            return None
        before, own = self.rungs[place - 1], self.rungs[place]
        views = own.views - before.views
        if views <= 0 or before.milliseconds is None or own.milliseconds is None:
            return None
        return (own.milliseconds - before.milliseconds) / views


LATENCY = Kind(Latency, "relook-latency", 1, "measured latencies", "export --latency")


def policy_mark(policy: Policy) -> str:
    """Return the fingerprint of the policy that latencies were measured for."""
    return fingerprint(policy_to_json(policy))


def milliseconds(value: float | None) -> str:
    """Return a time with three digits: `38.1 ms`."""
    return "?" if value is None else f"{value:,.3g} ms" if value < 999.5 else f"{value:,.0f} ms"


@dataclass(frozen=True)
class Stopwatch:
    """Times the call that `open_call` returns for each place; calls are kept for the next time."""

    open_call: Callable[[int], Callable[[], object]]
    clock: Callable[[], float] = time.perf_counter
    opened: dict[int, Callable[[], object]] = field(default_factory=dict)

    def __call__(self, places: Sequence[int], rounds: int) -> dict[int, float]:
        """Return the medians in milliseconds by place; every round times all places in turn."""
        for place in places:
            if place not in self.opened:
                self.opened[place] = self.open_call(place)
                self.opened[place]()  # first calls allocate and choose their algorithms

        def take() -> list[float]:
            return [self._seconds(self.opened[place]) for place in places]

        found = timed_rounds(take, seconds=_SECONDS, rounds=rounds, clock=self.clock)
        return dict(zip(places, (1000 * np.median(found, axis=0)).tolist(), strict=True))

    def _seconds(self, call: Callable[[], object]) -> float:
        start = self.clock()
        call()
        return self.clock() - start


Measure = Callable[[Sequence[int], int], Mapping[int, float]]


def choose(rungs: Sequence[Rung], budget: float, measure: Measure) -> tuple[list[Rung], int]:
    """Return the rungs that were measured, with their times, and the place of the best that fits.

    Rungs begin with the plain image; later ones have more views. Only a few are measured, but
    always the chosen one, which has the highest cLL or, if no cLL is known, the most views.
    """
    times = dict(measure(_worth_measuring(rungs, budget, measure), ROUNDS))
    while True:
        if times[0] > budget:
            raise RelookError(
                f"expected a call within {milliseconds(budget)}, got {milliseconds(times[0])} for "
                "the plain image alone: allow more, or take a faster network"
            )
        longest = max(place for place, took in times.items() if took <= budget)
        fitting = [place for place in range(longest + 1) if times.get(place, 0.0) <= budget]
        best = max(fitting, key=lambda place: (rungs[place].worth, -place))
        if best in times:
            break
        times |= measure([best], ROUNDS)
    measured = sorted(times)
    timed = [replace(rungs[place], milliseconds=times[place]) for place in measured]
    return timed, measured.index(best)


def _worth_measuring(rungs: Sequence[Rung], budget: float, measure: Measure) -> list[int]:
    """Return a few places up to the budget, and its neighbours on both sides."""
    steps = [place for place, one in enumerate(rungs) if one.views in _STEPS]
    rough: dict[int, float] = {}
    for place in dict.fromkeys((0, *steps, len(rungs) - 1)):
        rough |= measure([place], FEW)
        if rough[place] > budget:
            break
    known = sorted(rough)
    if len(known) < 2 or rough[known[-1]] <= budget:
        return known
    low, high = known[-2:]
    # Times are nearly linear in between, which is good enough to choose what to measure.
    share = (budget - rough[low]) / max(rough[high] - rough[low], 1e-9)
    near = low + round(share * (high - low))
    return sorted({*known, *(one for one in range(near - 1, near + 2) if low < one < high)})
