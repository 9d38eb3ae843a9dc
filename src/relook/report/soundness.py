"""Whether a comparison that was read from a file holds what the report draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import chain

from relook.evaluation.comparison import Comparison, Row

_LARGEST = 1e12
_NEEDED = {"cll", "accuracy"}


def flaw(comparison: Comparison) -> str | None:
    """Say in a few words what is wrong with a comparison, or None if nothing is."""
    if not comparison.rows or not comparison.budgets:
        return "no rows or no budgets"
    for row in comparison.rows:
        if not set(row.metrics) >= _NEEDED:
            return f"a row without {' and '.join(sorted(_NEEDED - set(row.metrics)))}"
    if not all(map(_is_number, _numbers(comparison))):
        return "something that is not a number where a number should be"
    costs = [cost for row in comparison.rows for cost in (row.views, row.budget, row.slowdown)]
    if min(chain(costs, comparison.budgets)) <= 0:
        return "a cost that is not positive"
    if not all(isinstance(text, str) for text in _texts(comparison)):
        return "something that is not text where text should be"
    return None


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -_LARGEST < value < _LARGEST and not math.isnan(value)


def _numbers(comparison: Comparison) -> Iterator[object]:
    yield from comparison.budgets
    yield from (comparison.images, comparison.gained_count, comparison.lost_count)
    yield comparison.verdict.recommended_views
    for row in comparison.rows:
        yield from _row_numbers(row)
    for one in chain.from_iterable(comparison.reliability.values()):
        yield from (one.share, one.confidence, one.accuracy)
    for change in (*comparison.gained, *comparison.lost):
        yield from (change.index, change.label, change.before, change.after)
        yield from (change.probability_before, change.probability_after)


def _row_numbers(row: Row) -> Iterator[object]:
    yield from (row.budget, row.views, row.slowdown)
    for measured in row.metrics.values():
        yield from (measured.mean, measured.deviation)
    for found in chain((row.over_plain or {}).values(), (row.over_rival or {}).values()):
        yield from (found.estimate, found.low, found.high, found.confidence)


def _texts(comparison: Comparison) -> Iterable[object]:
    verdict = comparison.verdict
    yield from (verdict.outcome, verdict.sentence, verdict.recommended_method)
    for row in comparison.rows:
        yield from (row.method, row.label)
