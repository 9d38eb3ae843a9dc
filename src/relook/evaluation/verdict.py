"""The plain answer to "is it better, and what should I deploy?".

What is claimed, and how it stays honest: the claim is about one row alone, the policy at the
largest budget asked for, which was found on other images; no best row is sought for it. "Helps"
means that it beats the plain image and the best baseline of the same budget, whose average was
learned as well. The recommendation does look at many rows, so each of the others must beat the
plain image at a level that is divided by their number (Bonferroni), and so are its intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from relook.errors import RelookError
from relook.evaluation.baselines import POLICY_METHOD, is_asked
from relook.evaluation.comparison import (
    AVERAGING,
    HELPS,
    MARGIN,
    USUAL,
    Comparison,
    Row,
    Verdict,
    outcome_of,
    policy_row,
)
from relook.evaluation.verdict_text import CheaperRow, Facts, verdict_text
from relook.numerics.intervals import Interval, corrected

_MOST_OF_THE_GAIN = 0.75
"""The verdict mentions a choice of at most half the views that has this share of the gain."""

Difference = Callable[[tuple[str, int], tuple[str, int]], Mapping[str, Interval]]
"""The differences in `cll` and `accuracy`, with learned averages, of two methods with budgets."""


def judge(
    rows: Sequence[Row],
    difference: Difference,
    *,
    budgets: Sequence[int],
    images: int,
    margin: float = MARGIN,
    same_as_plain: bool = False,
    cll_name: str = "held-out cLL",
    cross_fit: bool = False,
    left_out: int = 0,
) -> Verdict:
    """Return what to deploy, with the reasons in a few sentences.

    The text calls the cLL of these `images` `cll_name`; `same_as_plain`: the whole policy predicts
    what the plain image does; `cross_fit`: the images are not held out; `left_out` counts those
    that the search left out. Only rows of the policy are recommended if it beats all baselines,
    without those that a baseline of no more views beats in accuracy at a cLL as high.
    """
    if not 0 <= margin < float("inf"):
        raise RelookError(f"expected a margin of indifference ≥ 0, got {margin}")
    policy = policy_row(rows, max(budgets))
    plain = next((row for row in rows if row.method == "plain"), None)
    if policy is None or plain is None or policy.over_plain is None:
        methods = ", ".join(sorted({row.method for row in rows}))
        raise RelookError(
            f"the verdict needs the policy and the plain image among the rows, got {methods}"
        )
    rival = _rival(rows, policy)
    beats_rival = rival is None or (policy.over_rival or {})["cll"].low > 0
    policy_outcome = outcome_of(policy.over_plain["cll"], margin)
    helps = policy_outcome == HELPS and beats_rival

    asked = [row for row in rows if is_asked(row.method, row.budget, budgets)]
    tried = sum(row is not plain and row is not policy for row in asked)
    candidates = _Candidates(asked, plain, policy, difference, margin, tried)
    if helps:
        candidates = candidates.of_policy()
    recommended = candidates.recommended()
    outcome = policy_outcome
    if not helps and (policy_outcome == HELPS or recommended is not plain):
        outcome = AVERAGING
    from_views, from_average = _parts_of_gain(plain, policy)
    facts = Facts(
        outcome=outcome,
        policy_outcome=policy_outcome,
        plain=plain,
        policy=policy,
        recommended=recommended,
        rival=rival,
        has_baselines=any(row.method not in ("plain", POLICY_METHOD) for row in rows),
        tried=tried,
        margin=margin,
        images=images,
        cll_name=cll_name,
        cross_fit=cross_fit,
        left_out=left_out,
        same_as_plain=same_as_plain,
        from_views=from_views,
        from_average=from_average,
        cheaper=candidates.cheaper(recommended),
        higher_rival=candidates.is_higher(rival, recommended),
    )
    text = verdict_text(facts)
    return Verdict(outcome, text, recommended.method, recommended.views, from_views, from_average)


def rows_tried(comparison: Comparison) -> int:
    """Return how many rows the recommended one was chosen among; 1 for the whole policy."""
    policy, best = policy_row(comparison.rows, max(comparison.budgets)), comparison.recommended
    if policy is None or (best.method, best.views) == (policy.method, policy.views):
        return 1
    others = (row for row in comparison.rows if row is not policy and row.method != "plain")
    return sum(is_asked(row.method, row.budget, comparison.budgets) for row in others)


@dataclass(frozen=True)
class _Candidates:
    """The rows that may be recommended, of which `tried` are neither plain image nor policy."""

    rows: Sequence[Row]
    plain: Row
    policy: Row
    difference: Difference
    margin: float
    tried: int

    def of_policy(self) -> _Candidates:
        """Return the policy's rows alone, without those that another row is better than."""
        own = (row for row in self.rows if row.method == POLICY_METHOD)
        return replace(
            self, rows=[row for row in own if row is self.policy or not self._better(row)]
        )

    @cached_property
    def gaining(self) -> list[Row]:
        """The rows with a proven gain over the plain image."""
        others = (row for row in self.rows if row is not self.plain)
        return [row for row in others if outcome_of(self._gain(row), self.margin) == HELPS]

    def recommended(self) -> Row:
        """Return the row with the fewest views that is not worse than the best.

        That is: the lower bound of the difference to it is at least −margin. Only rows that show a
        gain over the plain image count, so without such a row it is the plain image. A row that
        another of no more views surely beats in accuracy, with a cLL as high, is never returned.
        Time decides nothing.
        """
        if not self.gaining:
            return self.plain
        good = [row for row in self.gaining if self._shortfall(row) <= self.margin]
        chosen = min(good, key=lambda row: (row.views, row is not self.policy, -row.best_cll))
        while better := self._better(chosen):
            chosen = max(better, key=lambda row: row.best_cll)
        return chosen

    def cheaper(self, recommended: Row) -> CheaperRow | None:
        """Return the shortest prefix of the recommended method with most of its gain, if any."""
        if not self.gaining:
            return None
        enough = max(_MOST_OF_THE_GAIN * self._gain(recommended).estimate, self.margin)
        close = [
            row
            for row in self.rows
            if row.method == recommended.method
            and 2 * row.views <= recommended.views
            and self._gain(row).estimate >= enough
        ]
        if not close:
            return None
        row = min(close, key=lambda row: row.views)
        gains = row in self.gaining
        return CheaperRow(row, self._gain(row), gains, self._best, self._shortfall(row))

    def is_higher(self, rival: Row | None, recommended: Row) -> bool:
        """Return whether a rival has the higher cLL, but no proven gain over the plain image."""
        if rival is None or not self.gaining or rival not in self.rows or rival in self.gaining:
            return False
        return rival.best_cll > recommended.best_cll

    @property
    def _best(self) -> Row:
        return max(self.gaining, key=lambda row: row.best_cll)

    def _gain(self, row: Row) -> Interval:
        cll = self.difference(row.key, self.plain.key)["cll"]
        return corrected(cll, 1 if row is self.policy else self.tried)

    def _shortfall(self, row: Row) -> float:
        """Return by how much the cLL of a row may be below the best."""
        return -self.difference(row.key, self._best.key)["cll"].low

    def _better(self, row: Row) -> list[Row]:
        """Return the rows that surely beat one in accuracy, with no more views or lower cLL."""
        able = (one for one in self.rows if one.views <= row.views and one.best_cll >= row.best_cll)
        return [one for one in able if self.difference(one.key, row.key)["accuracy"].low > 0]


def _rival(rows: Sequence[Row], policy: Row) -> Row | None:
    """Return the best baseline of the policy's budget; None if it is the plain image."""
    if policy.rival in (None, "plain") or policy.over_rival is None:
        return None
    own = [row for row in rows if row.method == policy.rival and row.budget <= policy.budget]
    return max(own, key=lambda row: row.budget)


def _parts_of_gain(plain: Row, policy: Row) -> tuple[float | None, float | None]:
    """Return the gain in cLL that the views bring, and what their average adds to it."""
    if f"cll{USUAL}" not in policy.metrics:
        return None, None
    usual = policy.metrics[f"cll{USUAL}"].mean
    return usual - plain.metrics["cll"].mean, policy.best_cll - usual
