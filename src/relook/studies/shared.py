"""What studies share: differences, names of stores, progress over parts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TypedDict

from relook.errors import unknown_name
from relook.evaluation.baselines import Options
from relook.evaluation.cross_validation import Evaluation
from relook.evaluation.results import Result, difference
from relook.evaluation.setup import ComparisonSettings, Setup
from relook.evaluation.verdict import corrected
from relook.foundation.progress import Progress, part_of
from relook.io.fingerprint import fingerprint
from relook.numerics.intervals import Interval
from relook.predictions.passes import View, distinct_views


class StudyKeywords(TypedDict, total=False):
    """Those fields of `ComparisonSettings` that studies take as keywords."""

    budgets: Sequence[int]
    methods: Sequence[str] | None
    options: Options | None
    seed: int
    runs: int
    batch: int | None
    halvings: int
    protocol: str


def asked_for(
    study: str, given: StudyKeywords, usual: StudyKeywords, without: Sequence[str] = ()
) -> ComparisonSettings:
    """Return a study's settings: what is given, or else what is usual for it.

    `without` names the keywords that mean nothing to the study.
    """
    known = [name for name in StudyKeywords.__annotations__ if name not in without]
    for name in given:
        if name not in known:
            raise unknown_name(f"keyword of {study}", name, known)
    return replace(ComparisonSettings(**usual), **given)


def differences(
    setup: Setup, one: Sequence[Evaluation], other: Sequence[Evaluation], **keys: object
) -> Iterator[Result]:
    """Yield the differences in cLL and accuracy between two methods."""
    for metric, interval in setup.differences(one, other).items():
        yield difference(metric, interval, **keys)


def corrected_change(change: Result, number: int) -> Interval:
    """Return a difference with an interval that holds for the best of `number`."""
    low = -math.inf if change.low is None else change.low
    high = math.inf if change.high is None else change.high
    return corrected(Interval(change.value, low, high, 0.95), number)


def store_path_of(setup: Setup, views: Sequence[View], directory: str | Path | None) -> Path | None:
    """Return where these predictions are kept: another study, or other views, are elsewhere."""
    if directory is None:
        return None
    identity = fingerprint(
        setup.predictor.fingerprint,
        setup.dataset.fingerprint,
        setup.places,
        [(asdict(view.subpolicy), view.index) for view in distinct_views(views)[0]],
        setup.seed,
        setup.batch,
    )
    return Path(directory) / f"{identity[:12]}.zarr"


def progress_shares(progress: Progress | None, passes: Sequence[int]) -> list[Progress | None]:
    """Return for each of several parts, given its passes, how it reports as part of all."""
    if progress is None:
        return [None] * len(passes)
    starts = [sum(passes[:place]) for place in range(len(passes))]
    return [part_of(progress, start, sum(passes)) for start in starts]
