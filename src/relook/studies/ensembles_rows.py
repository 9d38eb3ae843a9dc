"""From what was found for an ensemble and its members to rows with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from relook.evaluation.baselines import label_of
from relook.evaluation.comparison import Measured
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.scoring import Key, Setup, best_rival
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, mean_and_deviation, paired_bootstrap
from relook.studies.ensembles_result import SINGLE, WAYS, EnsembleRow

Evaluations = Mapping[Key, Sequence[Evaluation]]


@dataclass
class Found:
    """What is found on the way, by method and budget.

    `together` has the ensemble's evaluations, one a run; `alone` those of each member, runs
    within members; `views` what a member sees of an image.
    """

    together: dict[Key, list[Evaluation]] = field(default_factory=dict)
    alone: dict[Key, list[list[Evaluation]]] = field(default_factory=dict)
    views: dict[Key, int] = field(default_factory=dict)


def rows_of(setup: Setup, found: Found, members: int) -> tuple[EnsembleRow, ...]:
    """Return the ensemble's rows, then those of a single member, means over the members."""
    alone = {key: [_mean(runs) for runs in each] for key, each in found.alone.items()}
    return (
        *_rows(setup, found.together, found.views, members),
        *_rows(setup, alone, found.views, 1),
    )


def _rows(
    setup: Setup, evaluations: Evaluations, views: Mapping[Key, int], members: int
) -> list[EnsembleRow]:
    means = {
        key: {
            name: Measured(*mean_and_deviation([one.metrics[name] for one in ones]))
            for name in ones[0].metrics
        }
        for key, ones in evaluations.items()
    }
    cll = {key: metrics["cll"].mean for key, metrics in means.items()}

    def over(key: Key, other: Key | None) -> dict[str, Interval] | None:
        if other is None or other == key or other not in evaluations:
            return None
        return {
            name: paired_bootstrap(
                _per_image(evaluations[key], name) - _per_image(evaluations[other], name),
                seed=setup.seed,
                resamples=setup.resamples,
                groups=setup.dataset.groups,
            )
            for name in ("cll", "accuracy")
        }

    rows = []
    for key in evaluations:
        method, budget = key
        rival = best_rival(key, cll)
        searched = method in WAYS
        rows.append(
            EnsembleRow(
                method=method,
                label=WAYS[method] if searched else label_of(method),
                members=members,
                budget=budget,
                views=views[key],
                passes=members * views[key],
                metrics=means[key],
                over_plain=over(key, ("plain", 1)),
                over_rival=over(key, rival),
                over_single=over(key, (SINGLE, budget)) if searched else None,
                rival=None if rival is None else rival[0],
            )
        )
    return rows


def _per_image(ones: Sequence[Evaluation], name: str) -> FloatArray:
    mean: FloatArray = np.mean([one.per_image[name] for one in ones], axis=0)
    return mean


def _mean(runs: Sequence[Evaluation]) -> Evaluation:
    """Return the mean of a member's runs."""
    return Evaluation(
        {name: float(np.mean([one.metrics[name] for one in runs])) for name in runs[0].metrics},
        {name: _per_image(runs, name) for name in runs[0].per_image},
    )
