"""The rows of a comparison: what its lines score, and what is kept of the recommended one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from relook.evaluation.baselines import POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import (
    LEARNED,
    Fitted,
    Measured,
    Row,
    Verdict,
    recommended_row,
)
from relook.evaluation.cost import Slowdown, measure_slowdown
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.scoring import (
    Key,
    MethodRun,
    Setup,
    affordable,
    best_rival,
    disagreement,
    lengths_of,
    likely_between,
    per_image,
    score_budgets,
)
from relook.evaluation.where import Where, confusions, gains_by_slice
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.intervals import Interval, group_numbers, mean_and_deviation

ALL_PREFIXES_TO = 20
"""Up to this number of views every prefix is scored, for the curves; beyond, the asked budgets."""


@dataclass
class Scores:
    """Evaluations, one per run, and costs by method and budget.

    `fitted` is that of a method's first run, and so are its `answers` `[n]`, the likeliest classes,
    and `log_probs` `[n, c]`, with the most views; `disagreement` `[n]` is that of the policy's
    views.
    """

    evaluations: dict[Key, list[Evaluation]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)
    fitted: dict[Key, Fitted] = field(default_factory=dict)
    answers: dict[Key, Labels] = field(default_factory=dict)
    log_probs: dict[str, FloatArray] = field(default_factory=dict)
    disagreement: FloatArray = field(default_factory=lambda: np.empty(0))


def score_lines(setup: Setup, lines: Sequence[MethodRun]) -> Scores:
    """Score every line at every budget, and at every number of views that curves show."""
    scores = Scores()

    def all_prefixes(setup: Setup, line: MethodRun) -> dict[int, int]:
        if has_own_budget(line.method):
            return lengths_of(setup, line)
        shortest = min(one.policy.views for one in lines if one.method == line.method)
        every = range(1, min(ALL_PREFIXES_TO, setup.budgets[-1], shortest) + 1)
        return lengths_of(replace(setup, budgets=tuple(sorted({*every, *setup.budgets}))), line)

    for one in score_budgets(setup, lines, all_prefixes):
        scores.evaluations.setdefault(one.key, []).append(one.evaluation)
        scores.views[one.key] = max(one.views, scores.views.get(one.key, 0))
        if one.line.run == 0:
            if one.fitted is not None:
                scores.fitted[one.key] = one.fitted
            scores.answers[one.key] = one.log_probs.argmax(axis=1)
            scores.log_probs[one.line.method] = one.log_probs
            if one.line.method == POLICY_METHOD and not len(scores.disagreement):
                scores.disagreement = disagreement(one.line, one.read)
    return scores


def slowdowns_of(setup: Setup, lines: Sequence[MethodRun]) -> dict[str, Slowdown]:
    """Measure what each method takes, compared with one plain pass."""
    first = {line.method: line.policy for line in lines if line.run == 0}
    return measure_slowdown(setup.predictor, setup.dataset.images, first, setup.seed)


def rows_of(
    setup: Setup,
    scores: Scores,
    labels: Mapping[str, str],
    slowdowns: Mapping[str, Slowdown] | None,
) -> tuple[Row, ...]:
    """Return a row for each method and budget: means over runs, and differences to others."""
    means = {
        key: {
            name: Measured(*mean_and_deviation([one.metrics[name] for one in ones]))
            for name in ones[0].metrics
        }
        for key, ones in scores.evaluations.items()
    }
    ending = LEARNED if setup.both_averages else ""
    cll = {key: metrics[f"cll{ending}"].mean for key, metrics in means.items()}

    def over(key: Key, other: Key, average: str = "") -> dict[str, Interval]:
        return setup.differences(scores.evaluations[key], scores.evaluations[other], average)

    def over_plain(key: Key) -> dict[str, Interval]:
        usual = over(key, ("plain", 1))
        if not setup.both_averages:
            return usual
        same = all(
            one.per_image["cll"] is one.per_image[f"cll{LEARNED}"]
            for one in scores.evaluations[key]
        )
        learned = usual if same else over(key, ("plain", 1), LEARNED)
        return {**usual, **{f"{name}{LEARNED}": one for name, one in learned.items()}}

    rows, methods = [], list(labels)
    for key in sorted(means, key=lambda key: (methods.index(key[0]), key[1])):
        method, budget = key
        shown = budget in setup.budgets or has_own_budget(method)
        rival = best_rival(key, cll) if shown else None
        plain, views = method == "plain", scores.views[key]
        row = Row(
            method=method,
            label=labels[method],
            budget=budget,
            views=views,
            slowdown=1.0 if plain else float(slowdowns[method].at(views) if slowdowns else views),
            metrics=means[key],
            over_plain=None if plain else over_plain(key),
            over_rival=None if rival is None else over(key, rival, ending),
            rival=None if rival is None else rival[0],
            fitted=scores.fitted.get(key),
        )
        rows.append(row)
    return tuple(rows)


def of_recommended(
    setup: Setup, scores: Scores, rows: Sequence[Row], verdict: Verdict
) -> dict[str, Any]:
    """Return what is kept of the method that is recommended, and where it gains and loses.

    Where that is the plain image, the latter is said of the whole policy.
    """
    best = recommended_row(rows, verdict)
    policy = max((row for row in rows if row.method == POLICY_METHOD), key=lambda row: row.budget)
    shown = policy if best.method == "plain" else best
    ending = LEARNED if setup.both_averages else ""
    metrics = {name: f"{name}{ending}" for name in ("cll", "accuracy")}
    key, other, plain = (best.method, best.budget), (shown.method, shown.budget), ("plain", 1)
    runs, units = scores.evaluations, setup.dataset.units
    values = {name: per_image(runs[key], metric) for name, metric in metrics.items()}
    kept = {name: one.astype("<f4").tobytes() for name, one in values.items()}
    if units is not None:
        kept["units"] = group_numbers(units, len(units)).astype("<i4").tobytes()
    if setup.weights is not None:
        kept["weights"] = setup.weights.astype("<f4").tobytes()
    rivals = {one[0]: one for one in affordable(best.budget, runs) if one[0] != best.method}
    cll, right = (
        per_image(runs[other], one) - per_image(runs[plain], one) for one in metrics.values()
    )
    before, after, labels = scores.answers[plain], scores.answers[other], setup.dataset.labels
    slices = gains_by_slice(
        setup.dataset,
        setup.places,
        cll,
        right,
        np.exp(scores.log_probs["plain"].max(axis=1)),
        weights=setup.weights,
        likely=likely_between(runs[other], runs[plain], metrics["cll"]),
    )
    mended, made = (
        confusions(wrong, right, labels, setup.places)
        for wrong, right in ((before, after), (after, before))
    )
    return {
        "against": {
            name: setup.differences(runs[key], runs[one], ending) for name, one in rivals.items()
        },
        "per_image": kept,
        "where": Where(shown.method, shown.label, shown.budget, shown.views, slices, mended, made),
    }
