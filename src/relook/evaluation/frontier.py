"""What more time buys, and the best choice within a budget."""

from __future__ import annotations

from collections.abc import Sequence

from relook.errors import RelookError
from relook.evaluation.comparison import HELPS, MARGIN, Comparison, Row, outcome_of
from relook.foundation.wording import views_text
from relook.numerics.intervals import corrected


def frontier(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with a higher cLL than any other of at most their cost, cheapest first."""
    found: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.slowdown, -row.metrics["cll"].mean)):
        if not found or row.metrics["cll"].mean > found[-1].metrics["cll"].mean:
            found.append(row)
    return found


def pick(
    comparison: Comparison, budget_views: int | None = None, max_slowdown: float | None = None
) -> Row:
    """Return the best row that costs at most this number of views and this slowdown.

    Of the rows within the margin of the highest cLL this is the one with the fewest views. Only
    rows with a proven gain over the plain image count: above the margin, with an interval that is
    corrected for the number of rows. Without one, it is the plain image.
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
            f"{views_text(cheapest.views)} at {cheapest.slowdown:.3g} × the time of one view"
        )
    plain = [row for row in affordable if row.method == "plain"]
    others = [row for row in affordable if row.method != "plain"]

    def gains(row: Row) -> bool:
        over = row.with_learned_average.over_plain
        return over is not None and (
            outcome_of(corrected(over["cll"], len(others)), margin) == HELPS
        )

    candidates = [row for row in others if gains(row)] or plain or affordable
    best = max(row.best_cll for row in candidates)
    good = [row for row in candidates if row.best_cll >= best - margin]
    return min(good, key=lambda row: (row.views, -row.best_cll))
