"""Where a method gains over the plain image and where it loses: by class, and in other slices.

The level of every interval is divided by the number of intervals (Bonferroni), so that in 95 of 100
comparisons all of them hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.data.base import Column, Dataset
from relook.io.identities import copy_numbers
from relook.numerics.arrays import FloatArray, Indices, Labels
from relook.numerics.intervals import Interval, independent_images, paired_interval, share_interval
from relook.transforms.full_images import FullImages

FEWEST = 20
"""A slice of fewer independent images is too small for an interval."""

_LEVEL = 0.05
_PARTS = 4
_MOST_VALUES = 50  # a column with more values has no slices
_MOST_CONFUSIONS = 6
_EXAMPLES = 3


@dataclass(frozen=True)
class ChangedImage:
    """An image whose predicted class the policy changed; probabilities are the true class's."""

    index: int
    label: int
    before: int
    after: int
    probability_before: float
    probability_after: float


@dataclass(frozen=True)
class Slice:
    """Images that have something in common, and the gains over the plain image on them.

    `kind` is "class", "group", "size", "brightness", "confidence" (of the plain image) or a
    column of the data. Gains are None if there are too few images; `examples` are the images of a
    losing class that lose most.
    """

    kind: str
    name: str
    images: int
    cll: Interval | None = None
    accuracy: Interval | None = None
    examples: tuple[int, ...] = ()


@dataclass(frozen=True)
class Confusion:
    """A class mistaken for another: the number of images, and some `examples` of them."""

    label: int
    answer: int
    images: int
    examples: tuple[int, ...]


@dataclass(frozen=True)
class Where:
    """One method's gains and losses over the plain image, by slice, and the answers it changes.

    `mended` are the plain image's confusions that the method gets right, `made` those of the method
    that the plain image gets right, the most frequent first.
    """

    method: str
    label: str
    budget: int
    views: int
    slices: tuple[Slice, ...]
    mended: tuple[Confusion, ...]
    made: tuple[Confusion, ...]

    def of(self, kind: str) -> list[Slice]:
        """Return the slices of a kind with enough images, the largest loss first."""
        large = [one for one in self.slices if one.kind == kind and one.cll is not None]
        return sorted(large, key=lambda one: one.cll.estimate if one.cll else 0.0)

    def too_few(self, kind: str) -> list[Slice]:
        """Return the slices of a kind with too few images."""
        return [one for one in self.slices if one.kind == kind and one.cll is None]

    @property
    def kinds(self) -> list[str]:
        """The kinds of slices, in order."""
        return list(dict.fromkeys(one.kind for one in self.slices))

    @property
    def losing(self) -> list[Slice]:
        """The classes with a proven loss in cLL or accuracy."""
        return [one for one in self.of("class") if _loses(one)]

    @property
    def examples(self) -> list[int]:
        """All images that are shown as examples, by their index in the data set."""
        parts: list[Slice | Confusion] = [*self.slices, *self.mended, *self.made]
        return [index for part in parts for index in part.examples]


def gains_by_slice(
    dataset: Dataset,
    places: Indices,
    cll: FloatArray,
    right: FloatArray,
    confidence: FloatArray,
    *,
    weights: FloatArray | None = None,
    likely: float | None = None,
) -> tuple[Slice, ...]:
    """Return the gains in each slice of the images, with intervals that all hold together.

    `cll` and `right` `[n]` are the images' gains in cLL and accuracy, `confidence` `[n]` is the
    plain image's; `places`, `weights` and `likely` are as for the comparison of all images.
    """
    own = np.ones(len(cll)) if weights is None else weights
    cuts = [one for kind in _kinds(dataset, confidence) for one in _cuts(*kind, own)]
    level = 1 - _LEVEL / max(1, 2 * sum(one.is_large for one in cuts))

    def measured(one: _Cut) -> Slice:
        found, inside = Slice(one.kind, one.name, len(one.inside)), one.inside
        if not one.is_large:
            return found
        how: dict[str, Any] = {"confidence": level, "groups": one.units, "weights": own[inside]}
        gain = paired_interval(cll[inside], likely=likely, **how)
        found = replace(found, cll=gain, accuracy=share_interval(right[inside], **how))
        if one.kind != "class" or not _loses(found):
            return found
        worst = inside[np.argsort(cll[inside], kind="stable")[:_EXAMPLES]]
        return replace(found, examples=tuple(places[worst].tolist()))

    return tuple(map(measured, cuts))


def changed_images(
    before: FloatArray, after: FloatArray, labels: Labels, indices: NDArray[np.int64]
) -> tuple[tuple[ChangedImage, ...], tuple[ChangedImage, ...]]:
    """Return the images that turned right and those that turned wrong, the most changed first.

    `before` and `after` are log-probabilities `[n, c]`; the change is that of the true
    class's probability. `indices` `[n]` are the images' indices in the data set.
    """
    first, last = before.argmax(axis=1), after.argmax(axis=1)
    rows = np.arange(len(labels))
    old, new = np.exp(before[rows, labels]), np.exp(after[rows, labels])
    columns = [column.tolist() for column in (indices, labels, first, last, old, new)]

    def listed(chosen: NDArray[np.bool_]) -> tuple[ChangedImage, ...]:
        places = np.flatnonzero(chosen)
        order = places[np.argsort(-np.abs(new - old)[places], kind="stable")]
        return tuple(ChangedImage(*(column[i] for column in columns)) for i in order)

    was_right, is_right = first == labels, last == labels
    return listed(~was_right & is_right), listed(was_right & ~is_right)


def confusions(
    wrong: Labels, right: Labels, labels: Labels, places: Indices
) -> tuple[Confusion, ...]:
    """Return the most frequent wrong answers `[n]` of one method that another gets right."""
    chosen = np.flatnonzero((wrong != labels) & (right == labels))
    pairs = Counter(zip(labels[chosen].tolist(), wrong[chosen].tolist(), strict=True))

    def examples(label: int, answer: int) -> tuple[int, ...]:
        same = chosen[(labels[chosen] == label) & (wrong[chosen] == answer)]
        return tuple(places[same[:_EXAMPLES]].tolist())

    most = sorted(pairs, key=lambda pair: (-pairs[pair], pair))[:_MOST_CONFUSIONS]
    return tuple(Confusion(*pair, pairs[pair], examples(*pair)) for pair in most)


@dataclass(frozen=True)
class _Cut:
    """The places of a slice's images, their units, and whether there are enough of them."""

    kind: str
    name: str
    inside: Indices
    units: Column | None
    is_large: bool


def _kinds(
    dataset: Dataset, confidence: FloatArray
) -> Iterator[tuple[str, tuple[str, ...], Indices, Column | None]]:
    """Yield each kind with its slices' names, the number of each image's slice `[n]`, and units.

    Images of the same unit count as one.
    """
    units, images = dataset.units, dataset.images
    yield "class", dataset.classes, dataset.labels, units
    columns = [(name, column, units) for name, column in dataset.columns.items()]
    if dataset.groups is not None:
        # A claim on one group is about its own images, so only copies of an image count as one.
        columns.append(("group", dataset.groups, copy_numbers(dataset.identities)))
    for name, column, own in columns:
        values, numbers = np.unique(column, return_inverse=True)
        if len(values) <= _MOST_VALUES:
            yield name, tuple(map(str, values)), numbers, own
    if isinstance(images, FullImages):
        yield "size", *_quantiles(np.sqrt(images.shapes.prod(axis=1)), 0, " pixels"), units
    yield "brightness", *_quantiles(_brightness(dataset), 0), units
    yield "confidence", *_quantiles(confidence, 3), units


def _cuts(
    kind: str, names: tuple[str, ...], numbers: Indices, units: Column | None, weights: FloatArray
) -> list[_Cut]:
    """Return a kind's slices; except for classes, none if there is only one or all are small."""
    found = []
    for number in np.unique(numbers):
        inside = np.flatnonzero(numbers == number)
        own = None if units is None else units[inside]
        large = independent_images(weights[inside], own) >= FEWEST
        found.append(_Cut(kind, names[number], inside, own, large))
    worth = kind == "class" or (len(found) > 1 and any(one.is_large for one in found))
    return found if worth else []


def _quantiles(values: FloatArray, digits: int, unit: str = "") -> tuple[tuple[str, ...], Indices]:
    """Cut values into parts with about equally many images; return their names and numbers."""
    edges = np.unique(np.quantile(values, np.arange(1, _PARTS) / _PARTS))
    numbers = np.searchsorted(edges, values)
    ends = [values.min(), *edges, values.max()]
    names = (
        f"{part} of {len(ends) - 1}: {low:.{digits}f} to {high:.{digits}f}{unit}"
        for part, (low, high) in enumerate(pairwise(ends), 1)
    )
    return tuple(names), numbers


def _brightness(dataset: Dataset) -> FloatArray:
    """Return the mean grey level of each image `[n]`."""
    images = dataset.images
    if isinstance(images, FullImages):
        means = [images.levels(place).mean() for place in range(len(images))]
        images.release()
    else:
        means = [one.cpu().numpy().mean() for one in images]
    return np.array(means, dtype=np.float64)


def _loses(one: Slice) -> bool:
    return any(found is not None and found.high < 0 for found in (one.cll, one.accuracy))
