"""Random splits of images: stratified by class, and with groups kept together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, Indices


def stratified_split(
    labels: ArrayLike, share: float, seed: int, groups: ArrayLike | None = None
) -> tuple[Indices, Indices]:
    """Split images in two; the second part gets `share` of all and, closely, of each class.

    Returns sorted indices. A class of two images or more is on both sides if the size of the
    parts allows it. With `groups` (an id for each image) a group is never divided, and the shares
    are as close as a greedy assignment comes.
    """
    return _split(np.asarray(labels), share, np.random.default_rng(seed), groups)


@dataclass(frozen=True)
class Shares:
    """The shares of a split: `left_out` of all images, then `holdout` of the rest."""

    holdout: float
    left_out: float = 0.0


def parse_split(text: str, images: int) -> Shares:
    """Read `SEARCH:TEST`, each a share ("0.5"), a number of images ("5000") or "rest".

    Images beyond both parts are left out.
    """
    parts = [part.strip().lower() for part in text.split(":")]
    if len(parts) != 2 or parts.count("rest") == 2:
        raise _bad_split(text)
    counts = [None if part == "rest" else _count(part, images, text) for part in parts]
    search, test = (images - sum(c or 0 for c in counts) if c is None else c for c in counts)
    if search < 1 or test < 1 or search + test > images:
        raise RelookError(
            f"split {text}: expected at least 1 image in each part and at most {images:,} in "
            f"both, got {search:,} to search with and {test:,} to compare on"
        )
    used = search + test
    return Shares(test / used, (images - used) / images)


class Split(NamedTuple):
    """The images to search with, and those held out to compare on, both ascending."""

    search: Indices
    held_out: Indices


def search_split(
    labels: ArrayLike, holdout: float, left_out: float, seed: int, groups: ArrayLike | None = None
) -> Split:
    """Return the images to search with and those held out, stratified; see `Shares`."""
    if left_out == 0:
        return Split(*stratified_split(labels, holdout, seed, groups))
    used, _ = stratified_split(labels, left_out, seed, groups)
    own = None if groups is None else np.asarray(groups)[used]
    search, held_out = stratified_split(np.asarray(labels)[used], holdout, seed, own)
    return Split(used[search], used[held_out])


def joined_groups(one: ArrayLike, other: ArrayLike) -> Indices:
    """Return groups `[n]` that join images that are together in either of two groupings."""
    columns = [np.unique(given, return_inverse=True)[1] for given in (one, other)]
    joined = np.arange(len(columns[0]))
    while True:
        before = joined
        for column in columns:
            lowest = np.full(column.max() + 1, len(joined))
            np.minimum.at(lowest, column, joined)
            joined = lowest[column]
        if (joined == before).all():
            return joined


def _count(part: str, images: int, text: str) -> int:
    if re.fullmatch("[0-9]{1,12}", part):
        return int(part)
    if not re.fullmatch(r"0?\.[0-9]+|[01]\.[0-9]*", part) or not 0 < float(part) < 1:
        raise _bad_split(text)
    return int(float(part) * images + 0.5)


def _bad_split(text: str) -> RelookError:
    return RelookError(
        "split: expected SEARCH:TEST as shares (0.5:0.5), numbers of images (5000:5000) or "
        f"with the rest (2500:rest), got {text!r}"
    )


def halvings(
    images: int, count: int = 5, seed: int = 0, groups: ArrayLike | None = None
) -> list[tuple[Indices, Indices]]:
    """Halve the images `count` times, and use each halving both ways: 2·count pairs.

    A pair is (calibrate, score): test-time cross-validation, the paper's section 4.
    """
    if count < 1:
        raise RelookError(f"expected at least 1 halving, got {count}")
    labels = np.zeros(images, dtype=np.int64)
    pairs = []
    for number in range(count):
        first, second = _split(labels, 0.5, np.random.default_rng([seed, number]), groups)
        pairs += [(first, second), (second, first)]
    return pairs


def folds(
    images: int, count: int, seed: int, groups: ArrayLike | None = None
) -> list[tuple[Indices, Indices]]:
    """Cut the images into `count` parts at random: pairs of (all others, the part).

    A group stays in one part; there may be fewer parts, but at least 2.
    """
    units = np.arange(images) if groups is None else np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(units)
    if len(sizes) < 2:
        raise RelookError(f"expected at least 2 images or groups to split, got {len(sizes)}")
    order = np.random.default_rng([seed, count]).permutation(len(sizes))
    ends = np.cumsum(sizes[order])
    part = np.empty(len(sizes), dtype=np.int64)
    part[order] = (ends - sizes[order] / 2) * count / images
    own = part[units]
    return [(np.flatnonzero(own != fold), np.flatnonzero(own == fold)) for fold in np.unique(part)]


def _split(
    labels: NDArray[Any], share: float, generator: np.random.Generator, groups: ArrayLike | None
) -> tuple[Indices, Indices]:
    if labels.ndim != 1 or len(labels) < 2:
        raise RelookError(f"expected labels of at least 2 images, got shape {labels.shape}")
    if not 0 < share < 1:
        raise RelookError(f"expected a share between 0 and 1 for a split, got {share!r}")
    _, classes = np.unique(labels, return_inverse=True)
    if groups is None:
        in_second = _choose_images(classes, share, generator)
    else:
        in_second = _choose_groups(classes, share, generator, np.asarray(groups))
    return np.flatnonzero(~in_second), np.flatnonzero(in_second)


def _choose_images(
    classes: Indices, share: float, generator: np.random.Generator
) -> NDArray[np.bool_]:
    sizes = np.bincount(classes)
    # Shuffled, so that rounding does not always favour the first classes.
    order = generator.permutation(len(sizes))
    taken = np.empty_like(sizes)
    taken[order] = _allocate(sizes[order], share)
    # Images in random order, sorted by class; the first ones of each class are taken.
    shuffled = generator.permutation(len(classes))
    gathered = shuffled[np.argsort(classes[shuffled], kind="stable")]
    place = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(len(classes), dtype=np.bool_)
    chosen[gathered[place < np.repeat(taken, sizes)]] = True
    return chosen


def _allocate(sizes: Indices, share: float) -> Indices:
    """Return the number of images to take of each class, by largest remainder.

    The numbers sum to `share` of the total, rounded, with at least one image left on both sides.
    """
    total = int(np.clip(np.floor(share * sizes.sum() + 0.5), 1, sizes.sum() - 1))
    least, most = np.minimum(sizes // 2, 1), np.maximum(sizes - 1, 1)
    if not least.sum() <= total <= most.sum():
        least, most = np.zeros_like(sizes), sizes
    ideal = share * sizes
    taken: Indices = np.clip(np.floor(ideal).astype(np.int64), least, most)
    while taken.sum() < total:
        taken[np.argmax(np.where(taken < most, ideal - taken, -np.inf))] += 1
    while taken.sum() > total:
        taken[np.argmax(np.where(taken > least, taken - ideal, -np.inf))] -= 1
    return taken


def _choose_groups(
    classes: Indices, share: float, generator: np.random.Generator, groups: NDArray[Any]
) -> NDArray[np.bool_]:
    """Assign each group in turn to the side that lacks its classes more."""
    if groups.shape != classes.shape:
        raise RelookError(f"expected {len(classes)} group ids, got shape {groups.shape}")
    _, ids, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise RelookError("expected at least 2 groups to split, got 1")
    members = np.split(np.argsort(ids, kind="stable"), np.cumsum(sizes)[:-1])
    # A random order in which large groups tend to come first and small ones fill the gaps.
    order = np.argsort(generator.exponential(size=len(sizes)) / sizes)
    coins = generator.random(len(sizes)) < share
    lack: FloatArray = np.outer([1 - share, share], np.bincount(classes))
    per_image = 1 / np.bincount(classes)
    group_in_second = np.zeros(len(sizes), dtype=np.bool_)
    for group in order:
        own = classes[members[group]]
        gain = ((lack[1, own] - lack[0, own]) * per_image[own]).sum()
        group_in_second[group] = coins[group] if gain == 0 else gain > 0
        np.subtract.at(lack[int(group_in_second[group])], own, 1.0)
    if group_in_second.all() or not group_in_second.any():
        smallest = np.argmin(sizes)
        group_in_second[smallest] = not group_in_second[smallest]
    return group_in_second[ids]
