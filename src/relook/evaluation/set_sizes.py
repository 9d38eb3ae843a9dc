"""Coverage and size of prediction sets, on other images than their threshold was set with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.io.records import Kind
from relook.numerics.arrays import Labels
from relook.numerics.intervals import Interval, independent_images, paired_interval, share_interval

FEWEST = 30
"""With fewer independent images there are no figures."""

Sets = NDArray[np.bool_]
"""Whether each class is in an image's set, `[image, class]`."""

_SIZES = ((1, "0 or 1"), (3, "2 or 3"), (10, "4 to 10"), (np.inf, "over 10"))


@dataclass(frozen=True)
class SetFigures:
    """Coverage, mean size and share of empty sets, the plain image's, and the differences."""

    coverage: Interval
    size: Interval
    empty: float
    plain_coverage: Interval
    plain_size: Interval
    plain_empty: float
    coverage_change: Interval
    size_change: Interval


@dataclass(frozen=True)
class SetPart:
    """Images whose plain sets have this size, with figures unless there are too few."""

    plain_size: str
    images: int
    figures: SetFigures | None


@dataclass(frozen=True)
class SetReport:
    """Figures of all images, unless there are too few, and of easy and hard ones apart.

    `of_plain`: the sets are the plain image's own, with nothing to compare them with.
    """

    images: int
    figures: SetFigures | None
    parts: tuple[SetPart, ...]
    of_plain: bool = False


@dataclass(frozen=True)
class SetsRecord:
    """A run's prediction sets: what they are, and the report on other images.

    `text` names the deployed method, whose threshold was set with this many `images`; `policy` is
    the fingerprint of the run's policy. `coverage` is the one asked for, `deviation` its spread.
    """

    text: str
    score: str
    coverage: float
    per_class: bool
    images: int
    deviation: float
    report: SetReport
    policy: str


SETS = Kind(SetsRecord, "relook-prediction-sets", 1, "what prediction sets are worth", "conformal")


def report_sets(
    sets: Sets, plain: Sets, labels: Labels, groups: ArrayLike | None = None
) -> SetReport:
    """Compare sets with the plain image's; intervals of parts are corrected for their number."""
    found = np.searchsorted([upper for upper, _ in _SIZES], plain.sum(axis=1))
    parts = [(_SIZES[part][1], np.flatnonzero(found == part)) for part in np.unique(found)]
    units = None if groups is None else np.asarray(groups)

    def figures(places: NDArray[np.intp], confidence: float) -> SetFigures | None:
        own = None if units is None else units[places]
        return _figures(sets[places], plain[places], labels[places], own, confidence)

    level = 1 - 0.05 / max(1, len(parts))
    apart = (SetPart(name, len(places), figures(places, level)) for name, places in parts)
    return SetReport(len(labels), figures(np.arange(len(labels)), 0.95), tuple(apart))


def _figures(
    sets: Sets, plain: Sets, labels: Labels, groups: ArrayLike | None, confidence: float
) -> SetFigures | None:
    if independent_images(np.ones(len(labels)), groups) < FEWEST:
        return None
    how: dict[str, Any] = {"confidence": confidence, "groups": groups}
    images = np.arange(len(labels))
    covered, before = (one[images, labels].astype(np.float64) for one in (sets, plain))
    sizes, sizes_before = sets.sum(axis=1), plain.sum(axis=1)
    return SetFigures(
        _from_0(share_interval(covered, **how)),
        _from_0(paired_interval(sizes, **how)),
        float((sizes == 0).mean()),
        _from_0(share_interval(before, **how)),
        _from_0(paired_interval(sizes_before, **how)),
        float((sizes_before == 0).mean()),
        share_interval(covered - before, **how),
        paired_interval(sizes - sizes_before, **how),
    )


def _from_0(interval: Interval) -> Interval:
    """Cut an interval, made for differences, at 0: its value cannot be negative."""
    return replace(interval, low=max(0.0, interval.low))
