"""The data of figures: curves with their bands, and the range of the axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relook.evaluation.comparison import Comparison
from relook.evaluation.results import Result, Results
from relook.report.style import MethodStyle, method_styles

_ROOM_BELOW = 1.2


@dataclass(frozen=True)
class Point:
    """A metric at a number of views, and its band, equal to it if there is none."""

    views: float
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A method's points, in order of views."""

    style: MethodStyle
    points: tuple[Point, ...]


@dataclass(frozen=True)
class AxisRange:
    """The part of the vertical axis that is shown, and the methods that leave it."""

    low: float
    high: float
    leaving: tuple[str, ...]


def curves(comparison: Comparison, metric: str) -> tuple[Curve, ...]:
    """Return the curve of each method that has the metric, the policy first."""
    return curves_of(comparison.results(), metric, method_styles(comparison.labels))


def curves_of(
    results: Results,
    metric: str,
    looks: Mapping[str, MethodStyle],
    by: str = "method",
    across: str = "views",
) -> tuple[Curve, ...]:
    """Return a metric's curve for each method (the key `by`) that has a look.

    A band is the deviation over runs or, for a single run, the interval of the difference to
    the plain image. Of points with the same views, that of the largest budget counts.
    """
    found = results.where(metric=metric)
    drawn = []
    for name in looks:
        own = found.where(**{by: name})
        rows = own.where(versus=None, run=None).rows
        levels = sorted(rows, key=lambda row: (row[across], row["budget"] or 0))
        points = {row[across]: _point(row, own, across) for row in levels}
        if points:
            drawn.append(Curve(looks[name], tuple(points.values())))
    return tuple(drawn)


def shown_range(drawn: Sequence[Curve], everything: bool = False) -> AxisRange:
    """Return the range that shows policy and plain image well; curves far below leave it.

    One bad method (RandAugment at the training magnitude, say) would flatten all others.
    `everything` shows all points.
    """
    high = max(point.high for curve in drawn for point in curve.points)
    lows = [(curve.style, min(point.low for point in curve.points)) for curve in drawn]
    kept = [low for style, low in lows if style.is_policy or style.is_plain]
    floor = lowest = min(low for _, low in lows)
    if kept and high > min(kept) and not everything:
        floor = max(lowest, min(kept) - _ROOM_BELOW * (high - min(kept)))
    leaving = tuple(
        curve.style.label for curve in drawn if min(p.value for p in curve.points) < floor
    )
    margin = 0.06 * (high - floor) or 0.01 * abs(high) or 0.01
    return AxisRange(floor - margin * (not leaving), high + margin, leaving)


def _point(row: Result, own: Results, across: str) -> Point:
    below = above = row.deviation
    change = own.get(budget=row["budget"], metric=row.metric, versus="plain")
    if not row.deviation and change is not None and change.low is not None:
        below, above = change.value - change.low, (change.high or 0.0) - change.value
    return Point(row[across], row.value, row.value - below, row.value + above)
