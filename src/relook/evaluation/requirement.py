"""What a comparison must show for a change to pass: `helps`, `cll>=0.01`, `views<=10` …

A requirement is about the row that the verdict recommends. If that was chosen among many rows, its
intervals are corrected for their number, as in the verdict.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relook.errors import RelookError, unknown_name
from relook.evaluation.baselines import BASELINES
from relook.evaluation.comparison import (
    HELPS,
    MARGIN,
    METRICS_OF_A_ROW,
    Comparison,
    load_comparison,
    outcome_of,
)
from relook.evaluation.verdict import rows_tried
from relook.foundation.wording import interval, plain, signed, views_text
from relook.io.files import one_line
from relook.numerics.intervals import Interval, corrected, paired_interval, share_interval

_FORM = re.compile(r"(\w+)(\.mean)?\s*(>=|<=)\s*([-+]?\d*\.?\d+(?:[eE][-+]?\d+)?)")
_DIFFERENCES = ("cll", "accuracy")
_COSTS = ("views", "slowdown")
_NUMBERS = (*(one for one in METRICS_OF_A_ROW if one not in _DIFFERENCES), *_COSTS)
_EXAMPLES = "helps, 'cll>=0.01', 'accuracy>=-0.1', 'ece<=0.03' or 'views<=10'"
_NAMES = {"plain": "the plain image", "best": "the best baseline"}

_NO_GAIN = "the plain image is recommended, so there is no gain"
_NO_CHANGE = "the plain image is recommended, so nothing changes"


@dataclass(frozen=True)
class Requirement:
    """A requirement, parsed: `name` is "helps", "cll", "accuracy", a metric or a cost.

    `of_mean`: the bound is for the estimate, not for the end of its interval. `former` is the
    comparison if `against` is the file of one.
    """

    text: str
    name: str
    bound: float = 0.0
    at_least: bool = True
    of_mean: bool = False
    against: str = ""
    former: Comparison | None = None

    def allows(self, value: float) -> bool:
        """Return whether a value is within the bound."""
        return value >= self.bound if self.at_least else value <= self.bound


@dataclass(frozen=True)
class Checked:
    """Whether a requirement is met, and the value that was found."""

    requirement: str
    met: bool
    found: str

    def __str__(self) -> str:
        return f"{'met' if self.met else 'not met'}: {self.requirement}: {self.found}"


def read_requirement(text: str) -> Requirement:
    """Read `helps` or `METRIC>=NUMBER`, and `against plain|best|METHOD|FORMER.json` after it.

    cLL and accuracy (in points) are differences, to the plain image by default, and the end of
    their interval counts; `cll.mean` is the estimate alone.
    """
    asked, _, against = (part.strip() for part in text.partition(" against "))
    against, shown = against or "", one_line(text.strip())
    found = _FORM.fullmatch(asked)
    if asked != HELPS and found is None:
        raise RelookError(f"expected a requirement such as {_EXAMPLES}, got {shown!r}")
    name = HELPS if found is None else found[1]
    if name not in (HELPS, *_DIFFERENCES, *_NUMBERS):
        raise unknown_name("metric to require", name, (*_DIFFERENCES, *_NUMBERS))
    if name in _NUMBERS and (against or (found and found[2])):
        raise RelookError(
            f"{shown!r}: expected cll or accuracy with 'against' or '.mean': {name} is a number "
            "without an interval"
        )
    former = load_comparison(Path(against)) if against.endswith(".json") else None
    if against and former is None and against not in (*_NAMES, *BASELINES):
        raise unknown_name("method to compare with", against, (*_NAMES, *BASELINES, "FORMER.json"))
    if found is None:
        return Requirement(shown, name, against=against, former=former)
    bound, at_least, of_mean = float(found[4]), found[3] == ">=", found[2] is not None
    return Requirement(shown, name, bound, at_least, of_mean, against, former)


def check(comparison: Comparison, asked: Requirement) -> Checked:
    """Check whether the recommended row meets a requirement."""
    row = comparison.recommended
    named = f"{row.label} with {views_text(row.views)}"
    if asked.name == HELPS and not asked.against:
        outcome = comparison.verdict.outcome
        return Checked(asked.text, outcome == HELPS, f"the verdict is {outcome!r}")
    if asked.name in _NUMBERS:
        cost = getattr(row, asked.name, None)
        value = float(row.metrics[asked.name].mean if cost is None else cost)
        number = plain(value, 4).rstrip("0").rstrip(".")
        return Checked(asked.text, asked.allows(value), f"{number} ({named})")
    metric = "accuracy" if asked.name == "accuracy" else "cll"
    found = _difference(comparison, asked, metric)
    scale, digits, unit = (100, 2, " points") if metric == "accuracy" else (1, 4, "")
    other = _NAMES.get(asked.against or "plain", one_line(asked.against))
    is_itself = row.method == "plain" and (asked.against or "plain") == "plain"
    words = (
        f"{signed(scale * found.estimate, digits)}{unit} {interval(found, digits, scale)} "
        f"({named}, compared with {other})"
    )
    if asked.name == HELPS:
        margin = float(comparison.settings.get("margin", MARGIN))
        words = _NO_GAIN if is_itself else f"cLL {words}"
        return Checked(asked.text, outcome_of(found, margin) == HELPS, words)
    if asked.of_mean:
        end, value = "the estimate", found.estimate
    elif asked.at_least:
        end, value = "the lower end", found.low
    else:
        end, value = "the upper end", found.high
    met = asked.allows(scale * value)
    if is_itself:
        return Checked(asked.text, met, _NO_CHANGE if met else _NO_GAIN)
    return Checked(asked.text, met, f"{end} of {words}")


def _difference(comparison: Comparison, asked: Requirement, metric: str) -> Interval:
    """Return the recommended row's difference to the method or comparison asked for."""
    if asked.former is not None:
        return corrected(_to_former(comparison, asked, metric), rows_tried(comparison))
    known, own = comparison.against, comparison.recommended.method
    other = asked.against or "plain"
    if other == own or (other == "best" and not known):
        return Interval(0.0, 0.0, 0.0, 0.95)
    if other == "best":
        other = min(known, key=lambda name: known[name]["cll"].estimate)
    if other not in known:
        compared = ", ".join(known) or "none"
        raise RelookError(
            f"{asked.text!r}: expected a baseline that was compared with no more views "
            f"({compared}), got {other}: run  relook compare  with it"
        )
    return corrected(known[other][metric], rows_tried(comparison))


def _to_former(comparison: Comparison, asked: Requirement, metric: str) -> Interval:
    """Return the difference to the row recommended by another comparison on the same images."""
    former = asked.former or comparison
    data = [one.settings.get("data", {}).get("fingerprint") for one in (comparison, former)]
    sizes = {len(one.per_image.get(metric, b"")) for one in (comparison, former)}
    if data[0] != data[1] or sizes != {4 * comparison.images}:
        raise RelookError(
            f"{asked.text!r}: expected a comparison on the same {comparison.images:,} images, by "
            "this version of relook, got another: compare again on these images"
        )
    arrays = (np.frombuffer(one.per_image[metric], "<f4") for one in (comparison, former))
    now, then = (one.astype(np.float64) for one in arrays)
    kept = comparison.per_image
    units = np.frombuffer(kept["units"], "<i4") if "units" in kept else None
    weights = np.frombuffer(kept["weights"], "<f4").astype(float) if "weights" in kept else None
    interval_of = share_interval if metric == "accuracy" else paired_interval
    return interval_of(now - then, groups=units, weights=weights)
