"""A comparison as rows of the tidy table, and its rows as records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from relook.evaluation.baselines import POLICY_METHOD, is_asked
from relook.evaluation.results import Result, Results, difference

if TYPE_CHECKING:
    from relook.evaluation.comparison import Comparison, Row

_OVER_PLAIN = {"versus": "plain", "reference": "plain"}


def results_of(comparison: Comparison) -> Results:
    """Return every number of a comparison, with its settings and its verdict."""
    rows = [one for row in comparison.rows for one in _of_row(comparison, row)]
    rows += [*_of_slices(comparison), *_of_foreign(comparison), *_of_unsure(comparison)]
    settings = {
        **comparison.settings,
        "budgets": list(comparison.budgets),
        "images": comparison.images,
    }
    return Results("comparison", tuple(rows), settings, comparison.verdict.sentence)


def record_of(row: Row) -> dict[str, Any]:
    """Return a row as one record: names, costs, metrics, and differences with their intervals."""
    keys = ("method", "label", "budget", "views", "slowdown", "rival")
    record = {name: getattr(row, name) for name in keys}
    record |= {name: one.mean for name, one in row.metrics.items()}
    for other, differences in (("plain", row.over_plain), ("rival", row.over_rival)):
        for name, one in (differences or {}).items():
            record |= {
                f"{name}_over_{other}": one.estimate,
                f"{name}_over_{other}_low": one.low,
                f"{name}_over_{other}_high": one.high,
            }
    return record


def _of_row(comparison: Comparison, row: Row) -> Iterator[Result]:
    keys = _keys(comparison, row)
    for name, one in row.metrics.items():
        yield Result(name, one.mean, deviation=one.deviation, keys=keys)
    yield Result("slowdown", row.slowdown, keys=keys)
    policy = comparison.policy
    if row.method == POLICY_METHOD and policy.temperatures is not None:
        carried = policy.for_budget(row.views).temperatures
        yield Result("search_temperature", (carried or policy.temperatures)[-1], keys=keys)
    for name, own in (row.over_rival or {}).items():
        yield difference(name, own, **keys, versus="rival", reference=row.rival)
    for name, own in (row.over_plain or {}).items():
        yield difference(name, own, **keys, **_OVER_PLAIN)


def _of_slices(comparison: Comparison) -> Iterator[Result]:
    where = comparison.where
    row = None if where is None else comparison.row(where.method, where.budget)
    if where is None or row is None:
        return
    keys = {**_keys(comparison, row), "versus": "plain_in_slice"}
    del keys["asked"]
    for one in where.slices:
        own = {"slice": one.kind, "part": one.name, "images": one.images}
        for metric, found in (("cll", one.cll), ("accuracy", one.accuracy)):
            if found is not None:
                yield difference(metric, found, **keys, **own)


def _of_foreign(comparison: Comparison) -> Iterator[Result]:
    """Yield how well foreign images are detected; `by` names the score."""
    for one in comparison.ood:
        keys = {**_keys_of_most_views(comparison, one.method), "by": one.score}
        yield Result("auroc", one.auroc, keys=keys)
        yield Result("fpr95", one.fpr95, keys=keys)
        if one.over_plain is not None:
            yield difference("auroc", one.over_plain, **keys, **_OVER_PLAIN)


def _of_unsure(comparison: Comparison) -> Iterator[Result]:
    """Yield what leaving unsure images out brings; `by` says how these are found."""
    for name in () if comparison.selective is None else ("plain", "policy", "disagreement"):
        found = getattr(comparison.selective, name)
        by = "disagreement" if name == "disagreement" else "confidence"
        keys = {**_keys_of_most_views(comparison, name), "by": by}
        for metric in ("aurc", "adaptive_ece", "classwise_ece"):
            if getattr(found, metric) is not None:
                yield Result(metric, getattr(found, metric), keys=keys)
        for at in found.at:
            own = {**keys, "coverage": at.share}
            yield Result("accuracy_at", at.accuracy, keys=own)
            if at.over_plain is not None:
                yield difference("accuracy_at", at.over_plain, **own, **_OVER_PLAIN)


def _keys(comparison: Comparison, row: Row) -> dict[str, Any]:
    keys = {name: getattr(row, name) for name in ("method", "label", "budget", "views")}
    return {**keys, "asked": is_asked(*row.key, comparison.budgets)}


def _keys_of_most_views(comparison: Comparison, name: str) -> dict[str, Any]:
    """Return the keys of the plain image's row, or of the policy's with the most views."""
    method = "plain" if name == "plain" else POLICY_METHOD
    own = [row for row in comparison.rows if row.method == method][-1:]
    return _keys(comparison, own[0]) if own else {"method": method}
