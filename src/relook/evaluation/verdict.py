"""The plain answer to "is it better?", and the choice of a row for a budget.

What is claimed, and how it stays honest: the claim is about one row alone, the policy at the
largest budget asked for, which was found on other images; no best row is sought for it. The
recommendation does look at many rows, so each of the others must beat the plain image at a
level that is divided by their number (Bonferroni), and it is named without a figure of gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import Comparison, Row, Verdict
from relook.foundation.wording import views_text
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, paired_bootstrap

MARGIN = 0.001
"""A difference in cLL that nobody should care about, unless another is given."""

HELPS, NO_DIFFERENCE, HURTS = "helps", "no difference", "hurts"

_CONFIDENCE = 0.95
_NOTHING_LEARNED = (
    "No difference: the policy predicts just what the plain image does. Use the plain image."
)
_UNDONE = "the verdict needs the policy and the plain image among the rows, got {}"

Key = tuple[str, int]
Bound = Callable[[Row, Row, float], Interval]


def outcome_of(difference: Interval, margin: float = MARGIN) -> str:
    """Return the outcome for a difference in cLL to the plain image.

    It helps if the whole interval is above 0 and the estimate is more than the margin; it
    hurts if the same holds below; anything else is no difference.
    """
    if difference.low > 0 and difference.estimate > margin:
        return HELPS
    if difference.high < 0 and difference.estimate < -margin:
        return HURTS
    return NO_DIFFERENCE


def judge(
    rows: Sequence[Row],
    per_image: Mapping[Key, FloatArray],
    *,
    budgets: Sequence[int],
    margin: float = MARGIN,
    seed: int = 0,
    resamples: int = 2000,
    groups: ArrayLike | None = None,
) -> Verdict:
    """Say in one sentence whether the policy helps, and recommend the cheapest good choice.

    `per_image[method, budget]` `[n]` holds each image's calibrated log-likelihood, the same
    images for every row. Recommended is, among the budgets asked for, the row with the
    fewest views that is not worse than the best: the lower bound of the paired difference to
    it is at least −margin. Only rows that show a gain over the plain image count, so without
    such a row it is the plain image.
    """
    if not 0 <= margin < float("inf"):
        raise RelookError(f"expected a margin of indifference ≥ 0, got {margin}")
    policy = _policy_row(rows, max(budgets))
    plain = next((row for row in rows if row.method == "plain"), None)
    if policy is None or plain is None or policy.over_plain is None:
        raise RelookError(_UNDONE.format(", ".join(sorted({row.method for row in rows}))))

    def difference(one: Row, other: Row, confidence: float) -> Interval:
        values = per_image[one.method, one.budget] - per_image[other.method, other.budget]
        return paired_bootstrap(
            values, seed=seed, resamples=resamples, confidence=confidence, groups=groups
        )

    if np.allclose(per_image[policy.method, policy.budget], per_image["plain", 1], atol=1e-9):
        return Verdict(NO_DIFFERENCE, _NOTHING_LEARNED, "plain", 1)
    outcome = outcome_of(policy.over_plain["cll"], margin)
    best = _recommended(rows, plain, policy, budgets, margin, difference)
    rival = _rival(rows, policy) if outcome == HELPS else ""
    sentence = f"{_claim(policy, outcome, margin, rival)} {_advice(best, policy)}".strip()
    return Verdict(outcome, sentence, best.method, best.views)


def pick(
    comparison: Comparison, budget_views: int | None = None, max_slowdown: float | None = None
) -> Row:
    """Return the best row that costs at most this number of views and this slowdown.

    Only rows whose own 95 % interval and the margin show a gain over the plain image count;
    without one it is the plain image. Of those within the margin of the highest cLL it is the
    one with the fewest views. It is the best of many on the same images: its own figures are a
    little too good.
    """
    margin = float(comparison.settings.get("margin", MARGIN))
    affordable = [
        row
        for row in comparison.rows
        if (budget_views is None or row.views <= budget_views)
        and (max_slowdown is None or row.slowdown <= max_slowdown)
    ]
    if not affordable:
        cheapest = min(comparison.rows, key=lambda row: (row.slowdown, row.views))
        raise RelookError(
            f"nothing costs so little: the cheapest is {cheapest.label} with "
            f"{views_text(cheapest.views)} at {_times(cheapest.slowdown)} the time of one view"
        )
    gaining = [
        row
        for row in affordable
        if row.over_plain is not None and outcome_of(row.over_plain["cll"], margin) == HELPS
    ]
    worth = gaining or [row for row in affordable if row.method == "plain"] or affordable
    best = max(row.metrics["cll"].mean for row in worth)
    good = [row for row in worth if row.metrics["cll"].mean >= best - margin]
    return min(good, key=lambda row: (row.views, -row.metrics["cll"].mean))


def frontier(rows: Sequence[Row], metric: str = "cll", cost: str = "slowdown") -> list[Row]:
    """Return the rows that nothing cheaper or equally dear reaches, the cheapest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (getattr(row, cost), -row.metrics[metric].mean)):
        if not found or row.metrics[metric].mean > found[-1].metrics[metric].mean:
            found.append(row)
    return found


def _policy_row(rows: Sequence[Row], budget: int) -> Row | None:
    own = [row for row in rows if row.method == POLICY_METHOD and row.budget <= budget]
    return max(own, key=lambda row: row.budget, default=None)


def _recommended(
    rows: Sequence[Row],
    plain: Row,
    policy: Row,
    budgets: Sequence[int],
    margin: float,
    difference: Bound,
) -> Row:
    candidates = [row for row in rows if row.budget in budgets or has_own_budget(row.method)]
    others = [row for row in candidates if row is not plain and row is not policy]
    strict = 1 - (1 - _CONFIDENCE) / max(1, len(others))

    def gains(row: Row) -> bool:
        confidence = strict if row in others else _CONFIDENCE
        return outcome_of(difference(row, plain, confidence), margin) == HELPS

    gaining = [row for row in candidates if row is not plain and gains(row)]
    if not gaining:
        return plain
    best = max(gaining, key=lambda row: row.metrics["cll"].mean)
    good = [row for row in gaining if difference(row, best, _CONFIDENCE).low >= -margin]
    return min(good, key=lambda row: (row.views, row is not policy, -row.metrics["cll"].mean))


def _claim(policy: Row, outcome: str, margin: float, rival: str) -> str:
    over_plain = policy.over_plain or {}
    cll = over_plain["cll"]
    start = f"with {views_text(policy.views)} held-out cLL"
    accuracy = _accuracy(over_plain["accuracy"])
    cost = f"at {_times(policy.slowdown)} the time of one view"
    if outcome == NO_DIFFERENCE:
        doubt = "an interval that includes zero"
        if cll.low > 0 or cll.high < 0:
            doubt = f"within the margin of indifference, {margin:g}"
        return (
            f"No difference: {start} changes by {_signed(cll)} against the plain image, {doubt}, "
            f"and accuracy by {accuracy}, {cost}."
        )
    word, verb = ("Helps", "rises") if outcome == HELPS else ("Hurts", "falls")
    against = "over" if outcome == HELPS else "against"
    return (
        f"{word}: {start} {verb} by {_amount(cll)} {against} the plain image{rival}, "
        f"accuracy changes by {accuracy}, {cost}."
    )


def _rival(rows: Sequence[Row], policy: Row) -> str:
    """Compare with the best baseline of the same budget; nothing to say if that is plain."""
    if policy.rival in (None, "plain") or policy.over_rival is None:
        return ""
    own = [row for row in rows if row.method == policy.rival and row.budget <= policy.budget]
    best = max(own, key=lambda row: row.budget)
    what = f"{best.label} with {views_text(best.views)}"
    cll = policy.over_rival["cll"]
    if cll.low > 0:
        return f" and by {_amount(cll)} over {what}"
    verdict = "falls behind" if cll.high < 0 else "shows no gain over"
    return f" but {verdict} {what} ({_signed(cll)})"


def _advice(best: Row, policy: Row) -> str:
    if best.method == "plain":
        return "Use the plain image."
    if best == policy:
        return ""
    return f"The cheapest choice that is not worse: {best.label} with {views_text(best.views)}."


def _times(slowdown: float) -> str:
    """Write a factor with three digits, and a large one whole."""
    return f"{slowdown:.3g} ×" if slowdown < 1000 else f"{slowdown:,.0f} ×"


def _amount(change: Interval) -> str:
    """Write a rise or fall by its size: 0.0312 [0.0251, 0.0377]."""
    sign = 1 if change.estimate >= 0 else -1
    low, high = sorted((sign * change.low, sign * change.high))
    return f"{sign * change.estimate:.4f} [{low:.4f}, {high:.4f}]"


def _signed(change: Interval) -> str:
    return f"{change.estimate:+.4f} [{change.low:+.4f}, {change.high:+.4f}]".replace("-", "−")


def _accuracy(change: Interval) -> str:
    points = 100 * np.array([change.estimate, change.low, change.high])
    estimate, low, high = (f"{p:+.1f}".replace("-", "−") for p in points)
    return f"{estimate} points [{low}, {high}]"
