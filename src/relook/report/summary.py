"""A comparison for pages: the verdict, methods × budgets, and the meaning of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relook.evaluation.baselines import BASELINES, POLICY_LABEL, POLICY_METHOD
from relook.evaluation.comparison import Comparison, Row, policy_row
from relook.evaluation.cross_validation import FEWEST_SELECTIVE
from relook.foundation.wording import interval, signed
from relook.report.series import curves, shown_range
from relook.report.style import method_styles, shorten

METRICS = ("cll", "accuracy")
"""The metrics of the table and of the first two figures."""

_SHOWN = 0.9
_ABOUT_POLICY = "the views that Greedy Policy Search found on other images"
_STANDS_FOR = {
    "plain": "CC: central crop",
    "cf": "CF: crop and flip",
    "d4": "D4: the symmetries of a square",
}
"""Abbreviations in labels that the methods' descriptions do not explain."""


@dataclass(frozen=True)
class BudgetRows:
    """Every method with at most `budget` views, and the best value of each metric."""

    budget: int
    rows: tuple[Row, ...]
    best: Mapping[str, float]


class Summary:
    """A comparison as the templates read it.

    With `both_averages` the figures are those of learned averages, next to the usual ones. `about`
    describes the methods known to relook. `reach` is the range of the bars of differences in cLL.
    `leaving` has the methods whose curves for a metric are partly or wholly out of range;
    `confidence` is that of intervals.
    """

    def __init__(self, comparison: Comparison) -> None:
        fair = comparison.learned_averages
        self.both_averages = fair is not None
        self.comparison = comparison = fair or comparison
        rows, verdict = comparison.rows, comparison.verdict
        # The page shows the outcome, the sentence's first words, above it.
        self.sentence = verdict.sentence.removeprefix(verdict.outcome.capitalize()).lstrip(":, ")
        # The row that the verdict is about. The recommended one is the best of many, so its own
        # figures would be a little too good.
        self.judged = policy_row(rows, max(comparison.budgets, default=0))
        self.styles = styles = method_styles(comparison.labels)
        method = verdict.recommended_method
        self.recommended = styles[method].label if method in styles else shorten(method)
        self.groups = _groups(comparison)
        self.about = {m: about for m, style in styles.items() if (about := _about(m, style.label))}
        self.reach = _reach(comparison)
        self.leaving = {one: shown_range(curves(comparison, one)).leaving for one in METRICS}
        left_out = comparison.settings.get("left_out")
        self.left_out = left_out if isinstance(left_out, Mapping) else {}
        differences = [found for row in rows for found in (row.over_plain or {}).values()]
        self.confidence = differences[0].confidence if differences else None
        self.has_runs = any(one.deviation > 0 for row in rows for one in row.metrics.values())
        self.when_not_to_answer = when_not_to_answer(comparison)
        self.foreign = foreign_images(comparison)


def within_budget(comparison: Comparison, budget: int) -> list[Row]:
    """Return the row of each method with the most views up to `budget`, the best cLL first."""
    best: dict[str, Row] = {}
    for row in sorted(comparison.rows, key=lambda row: row.budget):
        if row.budget <= budget:
            best[row.method] = row
    return sorted(best.values(), key=lambda row: -row.metrics["cll"].mean)


def _groups(comparison: Comparison) -> list[BudgetRows]:
    found = {budget: within_budget(comparison, budget) for budget in comparison.budgets}
    return [
        BudgetRows(
            budget, tuple(rows), {m: max(row.metrics[m].mean for row in rows) for m in METRICS}
        )
        for budget, rows in found.items()
        if rows
    ]


def _about(method: str, label: str) -> str:
    if method == POLICY_METHOD:
        return _ABOUT_POLICY if label == POLICY_LABEL else "the policy that was compared, a preset"
    if method not in BASELINES:
        return ""
    letters = _STANDS_FOR.get(method)
    return BASELINES[method].about + (f" ({letters})" if letters else "")


def _reach(comparison: Comparison) -> float:
    """Return the largest end of the policy's intervals, with some room."""
    policy = [row for row in comparison.rows if row.method == POLICY_METHOD]
    ends = [
        abs(end)
        for row in policy or comparison.rows
        if row.over_plain and "cll" in row.over_plain
        for end in (row.over_plain["cll"].low, row.over_plain["cll"].high)
    ]
    return 1.15 * max(ends, default=1.0) or 1.0


def when_not_to_answer(comparison: Comparison) -> str:
    """Return a sentence or two on the gain from leaving unsure images unanswered."""
    found = comparison.selective
    if found is None:
        few = comparison.images < FEWEST_SELECTIVE
        got = f"expected {FEWEST_SELECTIVE}, got {comparison.images}"
        return f"Too few images to say when not to answer: {got}." if few else ""
    own, by_views = found.policy.answering(_SHOWN), found.disagreement.answering(_SHOWN)
    plain, whole = found.plain.answering(_SHOWN), found.policy.answering(1.0)
    if not (own and own.over_plain and by_views and plain and whole):
        return ""
    return (
        f"Answering only the surest {100 * _SHOWN:g} % of the images, the policy is right on "
        f"{100 * own.accuracy:.1f} % of them instead of {100 * whole.accuracy:.1f} % of all; the "
        f"plain image on {100 * plain.accuracy:.1f} %, a difference of "
        f"{signed(100 * own.over_plain.estimate, 1)} points {interval(own.over_plain, 1, 100)}. "
        "If images are left out by disagreement between views instead, accuracy is "
        f"{100 * by_views.accuracy:.1f} %."
    )


def foreign_images(comparison: Comparison) -> str:
    """Return a sentence on how well foreign images are detected; nothing if none were given."""
    found = {(one.method, one.score): one for one in comparison.ood}
    plain, own = (found.get((one, "max_probability")) for one in ("plain", "policy"))
    if not (plain and own and own.over_plain):
        return ""
    gain = own.over_plain
    return (
        f"Foreign images: by the policy's confidence an AUROC of {own.auroc:.3f}, by the plain "
        f"image's {plain.auroc:.3f}, a difference of {signed(gain.estimate, 3)} "
        f"{interval(gain, 3)}; where 95 % of the own images are answered, {100 * own.fpr95:.1f} % "
        f"of the foreign ones are too (plain: {100 * plain.fpr95:.1f} %)."
    )
