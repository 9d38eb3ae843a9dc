"""What studies share: scoring of budgets, differences, names of stores, progress over parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from relook.evaluation.baselines import BASELINES
from relook.evaluation.cross_validation import Evaluation, cross_validated, prefix_log_probs
from relook.evaluation.results import Result, difference
from relook.evaluation.scoring import MethodRun, Setup, predicted
from relook.foundation.progress import Progress, part_of
from relook.io.fingerprint import fingerprint
from relook.numerics.arrays import FloatArray
from relook.numerics.intervals import Interval, paired_bootstrap
from relook.predictions.passes import View, distinct_views

Lengths = Callable[[Setup, MethodRun], Mapping[int, int]]
"""How many entries of a line are scored for each budget."""


@dataclass(frozen=True)
class Scored:
    """One line at one budget: its mean log-probabilities `[n, c]` and how good they are."""

    line: MethodRun
    budget: int
    views: int
    log_probs: FloatArray
    evaluation: Evaluation


def lengths_of(setup: Setup, line: MethodRun) -> dict[int, int]:
    """Return a method's budgets: its own, if it has one, or all that are asked for."""
    row = BASELINES.get(line.method)
    if row is not None and row.budget is not None:
        return {row.budget: len(line.policy)}
    return {budget: len(line.policy.for_budget(budget)) for budget in setup.budgets}


def score_budgets(
    setup: Setup, lines: Sequence[MethodRun], lengths: Lengths = lengths_of
) -> Iterator[Scored]:
    """Predict each distinct view of all lines once, and score every line at every budget."""
    read = predicted(setup, [view for line in lines for view in line.views])
    for line in lines:
        wanted = lengths(setup, line)
        prefixes = sorted(set(wanted.values()))
        means = prefix_log_probs(read(line.views), prefixes)
        for length, mean in zip(prefixes, means, strict=True):
            found = evaluated(setup, mean)
            views = line.policy[:length].views
            for budget in (b for b, own in wanted.items() if own == length):
                yield Scored(line, budget, views, mean, found)


def evaluated(setup: Setup, log_probs: FloatArray) -> Evaluation:
    """Return the cross-validated metrics of log-probabilities `[n, c]`."""
    return cross_validated(
        log_probs,
        setup.dataset.labels,
        seed=setup.seed,
        halvings=setup.halvings,
        groups=setup.dataset.groups,
    )


def paired(setup: Setup, one: FloatArray, other: FloatArray) -> Interval:
    """Return the mean difference of values of the same images `[n]`, with its interval."""
    return paired_bootstrap(
        one - other, seed=setup.seed, resamples=setup.resamples, groups=setup.dataset.groups
    )


def per_image(runs: Sequence[Evaluation], metric: str) -> FloatArray:
    """Return a metric of each image `[n]`, averaged over the runs."""
    mean: FloatArray = np.mean([one.per_image[metric] for one in runs], axis=0)
    return mean


def differences(
    setup: Setup, one: Sequence[Evaluation], other: Sequence[Evaluation], **keys: object
) -> Iterator[Result]:
    """Yield the differences in cLL and accuracy between two methods."""
    for metric in ("cll", "accuracy"):
        interval = paired(setup, per_image(one, metric), per_image(other, metric))
        yield difference(metric, interval, **keys)


def store_path_of(setup: Setup, views: Sequence[View], directory: Path | None) -> Path | None:
    """Return where these predictions are kept: another study, or other views, are elsewhere."""
    if directory is None:
        return None
    mark = fingerprint(
        setup.predictor.fingerprint,
        setup.dataset.fingerprint,
        setup.places,
        [(asdict(view.subpolicy), view.index) for view in distinct_views(views)[0]],
        setup.seed,
        setup.batch,
    )
    return directory / f"{mark[:12]}.zarr"


def progress_shares(progress: Progress | None, passes: Sequence[int]) -> list[Progress | None]:
    """Return for each of several parts, of so many passes, how it reports as part of all."""
    if progress is None:
        return [None] * len(passes)
    starts = [sum(passes[:place]) for place in range(len(passes))]
    return [part_of(progress, start, sum(passes)) for start in starts]
