"""What is picked within a number of views or a slowdown, and what is worth its price."""

from dataclasses import replace

import numpy as np
import pytest
from tests.support import refused
from tests.unit.data.marked_images import noisy
from tests.unit.evaluation.verdict_cases import compared, rows_of

from relook.evaluation.baselines import label_of
from relook.evaluation.comparison import Comparison, Measured, Row
from relook.evaluation.frontier import frontier, pick
from relook.numerics.intervals import Interval


def row(views: int, cll: float, slowdown: float, method: str = "gps") -> Row:
    metrics = {"cll": Measured(cll, 0.0), "accuracy": Measured(0.9, 0.0)}
    gain = cll + 0.30  # the plain image has −0.30
    over_plain = {"cll": Interval(gain, gain - 0.01, gain + 0.01, 0.95)}
    return Row(method, label_of(method), views, views, slowdown, metrics, over_plain)


ROWS = (
    row(1, -0.30, 1.0, "plain"),
    row(2, -0.25, 2.1),
    row(2, -0.31, 2.0, "flip"),
    row(5, -0.20, 6.0),
    row(5, -0.22, 5.1, "5c"),
    row(9, -0.20, 9.0),
)


def with_rows(*rows: Row) -> Comparison:
    return replace(compared(*noisy(images=40)), rows=rows)


@pytest.mark.parametrize(
    ("budget_views", "max_slowdown", "views", "cll"),
    [
        (None, None, 5, -0.20),
        (4, None, 2, -0.25),
        (1, None, 1, -0.30),
        (None, 5.5, 5, -0.22),
        (4, 2.05, 1, -0.30),
    ],
)
def test_the_best_that_one_can_afford_is_picked(
    budget_views: int | None, max_slowdown: float | None, views: int, cll: float
) -> None:
    found = pick(with_rows(*ROWS), budget_views, max_slowdown)
    assert (found.views, found.metrics["cll"].mean) == (views, cll)


def test_the_best_of_many_prefixes_is_not_picked_by_luck() -> None:
    """Where no method differs from the plain image, the best of many must not be picked.

    Prefixes of three methods average noise that means nothing; with intervals of 95 % for each row
    another than the plain image was picked in a third of such trials.
    """
    whole = compared(*noisy(images=40))
    picked = 0
    for trial in range(60):
        generator = np.random.default_rng(trial)
        plain = -1 + 0.5 * generator.normal(size=300)
        scores = {("plain", 1): plain}
        for method in ("cf", "mtrain", "gps"):
            noise = 0.1 * generator.normal(size=(20, 300))
            means = np.cumsum(noise, axis=0) / np.arange(1, 21)[:, None]
            scores |= {(method, k + 1): plain + means[k] for k in range(20)}
        rows = rows_of(scores)
        picked += pick(replace(whole, rows=tuple(rows)), budget_views=20).method != "plain"
    assert picked <= 4


def test_what_shows_no_gain_is_not_picked_over_the_plain_image() -> None:
    rows = (row(1, -0.30, 1.0, "plain"), row(5, -0.295, 48.0, "5c"))
    assert pick(with_rows(*rows), budget_views=5).method == "plain"


def test_nothing_affordable_says_what_the_cheapest_costs() -> None:
    message = r"the cheapest is plain image .* with 1 view at 1 ×"
    refused(message, pick, with_rows(*ROWS), max_slowdown=0.5)


def test_the_frontier_leaves_out_what_something_cheaper_reaches() -> None:
    assert frontier(ROWS) == [ROWS[0], ROWS[1], ROWS[4], ROWS[3]]
