"""What pages say about a comparison: verdict, table of methods × budgets, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relook.evaluation.baselines import BASELINES, POLICY_METHOD
from relook.evaluation.comparison import Comparison, Row, Verdict
from relook.foundation import wording
from relook.numerics.intervals import Interval
from relook.report.series import curves, has_runs, shown_range, within_budget
from relook.report.style import MethodStyle, method_styles, shorten

_OUTCOMES = {
    "helps": ("helps", "It helps"),
    "no difference": ("same", "No difference"),
    "hurts": ("hurts", "It hurts"),
}
_POINTS = 100.0
_COLUMNS = (("cll", 4, 1.0), ("accuracy", 2, _POINTS))
_ABOUT_POLICY = "the views that Greedy Policy Search found on other images"
_STANDS_FOR = {
    "plain": "CC: central crop",
    "cf": "CF: crop and flip",
    "d4": "D4: the symmetries of a square",
}
"""Abbreviations in labels that the methods' descriptions leave open."""


@dataclass(frozen=True)
class Whisker:
    """A difference and its interval as places on a line from 0 to 80 with no difference at 40.

    `kind` is "up", "down" or "open"; `beyond` is ±1 where the estimate lies past an end.
    """

    kind: str
    low: float
    estimate: float
    high: float
    beyond: int


@dataclass(frozen=True)
class Line:
    """A method within a budget: its scores, look, meaning, and the metrics it is best in."""

    row: Row
    style: MethodStyle
    about: str
    best: frozenset[str]
    whisker: Whisker | None


@dataclass(frozen=True)
class Group:
    """What every method reaches with at most `budget` views, the best cLL first."""

    budget: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Results:
    """A comparison as the templates read it.

    `columns` are metrics with their digits and scale; `tiles` name, value and a small line;
    `explained` methods' labels with their meaning; `leaving` the methods that a metric's curves
    do not show, in part or whole; `confidence` that of the intervals, as text.
    """

    outcome: str
    mark: str
    sentence: str
    whole_sentence: str
    tiles: tuple[tuple[str, str, str], ...]
    images: int
    groups: tuple[Group, ...]
    styles: tuple[MethodStyle, ...]
    explained: tuple[tuple[str, str], ...]
    leaving: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, object]
    confidence: str | None
    has_runs: bool
    columns: tuple[tuple[str, int, float], ...] = _COLUMNS


def results_of(comparison: Comparison) -> Results:
    """Return what pages show of a comparison."""
    verdict = comparison.verdict
    outcome, mark = _OUTCOMES.get(verdict.outcome, ("same", verdict.outcome))
    styles = tuple(method_styles(comparison.rows).values())
    left_out = comparison.settings.get("left_out")
    return Results(
        outcome=outcome,
        mark=mark,
        sentence=_without_mark(verdict),
        whole_sentence=verdict.sentence,
        tiles=_tiles(comparison),
        images=comparison.images,
        groups=_groups(comparison),
        styles=styles,
        explained=tuple((one.label, about) for one in styles if (about := _about(one.method))),
        leaving={
            metric: shown_range(curves(comparison, metric)).leaving for metric, *_ in _COLUMNS
        },
        left_out=left_out if isinstance(left_out, Mapping) else {},
        confidence=_confidence(comparison),
        has_runs=has_runs(comparison),
    )


def _without_mark(verdict: Verdict) -> str:
    """Return the sentence without the outcome at its head, which stands above it."""
    rest = verdict.sentence.removeprefix(f"{verdict.outcome.capitalize()}: ")
    return rest[:1].upper() + rest[1:]


def _tiles(comparison: Comparison) -> tuple[tuple[str, str, str], ...]:
    """Return the recommendation, and the figures of the row that the verdict is about.

    The recommended row is the pick of many, so its own figures would be a little too good.
    """
    verdict = comparison.verdict
    most = max(comparison.budgets, default=0)
    own = [row for row in comparison.rows if row.method == POLICY_METHOD and row.budget <= most]
    if not own:
        return ()
    judged = max(own, key=lambda row: row.budget)
    labels = {row.method: row.label for row in reversed(comparison.rows)}
    label = labels.get(verdict.recommended_method, verdict.recommended_method)
    views = wording.count(judged.views, "view")
    accuracy = wording.plain(judged.metrics["accuracy"].mean * _POINTS, 2)
    return (
        ("Recommended", wording.count(verdict.recommended_views, "view"), shorten(label)),
        (
            f"cLL, {views}",
            wording.plain(judged.metrics["cll"].mean, 4),
            _over_plain(judged, "cll", 4, 1.0),
        ),
        (f"Accuracy, {views}", f"{accuracy} %", _over_plain(judged, "accuracy", 2, _POINTS)),
        (f"Time, {views}", wording.slowdown(judged.slowdown), "one plain pass = 1×"),
    )


def _over_plain(row: Row, metric: str, digits: int, scale: float) -> str:
    found = (row.over_plain or {}).get(metric)
    if found is None:
        return "the plain image"
    difference = wording.signed(found.estimate * scale, digits)
    return f"{difference} {wording.interval(found, digits, scale)} against plain"


def _groups(comparison: Comparison) -> tuple[Group, ...]:
    styles = method_styles(comparison.rows)
    reach = _reach(comparison)
    groups = []
    for budget in comparison.budgets:
        rows = within_budget(comparison, budget)
        highest = {m: max((row.metrics[m].mean for row in rows), default=0.0) for m, *_ in _COLUMNS}
        lines = tuple(
            Line(
                row,
                styles[row.method],
                _about(row.method),
                frozenset(m for m, value in highest.items() if row.metrics[m].mean >= value),
                _whisker((row.over_plain or {}).get("cll"), reach),
            )
            for row in rows
        )
        groups.append(Group(budget, lines))
    return tuple(group for group in groups if group.lines)


def _about(method: str) -> str:
    """Say what a method is; nothing of one that relook does not know."""
    if method == POLICY_METHOD:
        return _ABOUT_POLICY
    if method not in BASELINES:
        return ""
    letters = _STANDS_FOR.get(method)
    return BASELINES[method].about + (f" ({letters})" if letters else "")


def _whisker(found: Interval | None, reach: float) -> Whisker | None:
    """Return a difference on −reach … +reach; what lies beyond ends at the edge."""
    if found is None:
        return None

    def place(value: float) -> float:
        return round(40 + 37 * max(-1.0, min(1.0, value / reach)), 2)

    kind = "up" if found.low > 0 else "down" if found.high < 0 else "open"
    beyond = 0 if abs(found.estimate) <= reach else 1 if found.estimate > 0 else -1
    return Whisker(kind, place(found.low), place(found.estimate), place(found.high), beyond)


def _reach(comparison: Comparison) -> float:
    """Return how far the whiskers reach: past every interval of the policy."""
    policy = [row for row in comparison.rows if row.method == POLICY_METHOD]
    ends = [
        abs(end)
        for row in policy or comparison.rows
        if row.over_plain and "cll" in row.over_plain
        for end in (row.over_plain["cll"].low, row.over_plain["cll"].high)
    ]
    return 1.15 * max(ends, default=1.0) or 1.0


def _confidence(comparison: Comparison) -> str | None:
    for row in comparison.rows:
        for found in (row.over_plain or {}).values():
            return f"{100 * found.confidence:g} %"
    return None
