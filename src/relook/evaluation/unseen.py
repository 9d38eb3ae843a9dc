"""The images that may support a claim: those that nothing in a policy was found on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.data.base import Dataset
from relook.errors import RelookError, warn
from relook.io.identities import Identities, is_in, set_of, union, why_unknown
from relook.numerics.arrays import Indices
from relook.policy import Policy

FEWEST = 4
"""A claim on fewer images is refused."""


@dataclass(frozen=True)
class Unseen:
    """The images that no policy was found on; `doubt` is a sentence if that is not certain.

    `kept` are their places among the `given` images, `indices` those in the whole data set.
    """

    dataset: Dataset
    indices: Indices
    kept: Indices
    given: int
    doubt: str


class Fold(NamedTuple):
    """Places of images, and a policy that was found on none of them."""

    places: Indices
    policy: Policy


def folds_of(dataset: Dataset, policy: Policy) -> tuple[Fold, ...]:
    """Return the images that the policy has not seen, and its halves with the others.

    There are none if the policy has seen no image, or has no halves.
    """
    if not policy.halves or not _known(dataset, policy.seen).any():
        return ()
    left, found = np.ones(len(dataset), dtype=np.bool_), []
    for one in (replace(policy, halves=()), *policy.halves):
        own = left & ~_known(dataset, one.seen)
        found += [Fold(np.flatnonzero(own), one)] if own.any() else []
        left &= ~own
    return tuple(found)


def unseen_part(
    dataset: Dataset, policies: Sequence[Policy], indices: ArrayLike | None = None
) -> Unseen:
    """Leave out the images that a policy, or a number in it, was found on, with a warning."""
    places = np.arange(len(dataset)) if indices is None else np.asarray(indices, dtype=np.int64)
    left, part = unseen_places(dataset, policies), dataset
    if len(left) < len(dataset):
        warn(left_out_note(dataset, len(left)))
        part = dataset.subset(left)
    doubt = doubt_of(dataset.identities, union(*(policy.seen for policy in policies)))
    return Unseen(part, places[left], left, len(dataset), doubt)


def unseen_places(
    dataset: Dataset, policies: Sequence[Policy], held_out: Sequence[Indices] = ()
) -> Indices:
    """Return the places of the images that no policy was found on; raise if too few are left.

    For a policy with halves it is enough that one of them was not found on the image. With places
    that searches have `held_out`, only these are returned.
    """
    open_to = [
        ~np.all([_known(dataset, one.seen) for one in (policy, *policy.halves)], axis=0)
        for policy in policies
    ]
    left = np.flatnonzero(np.all(open_to, axis=0))
    for places in held_out:
        left = np.intersect1d(left, places)
    if len(left) < min(FEWEST, len(dataset)):
        raise RelookError(
            f"{dataset.name}: expected at least {FEWEST} images that no policy was found on, got "
            f"{len(left)} of {len(dataset):,}: a gain on the others says nothing; give other "
            "images"
        )
    return left


def _known(dataset: Dataset, seen: bytes) -> NDArray[np.bool_]:
    """Return which images are in a set, or in a group with one that is `[n]`."""
    known = is_in(dataset.identities, seen)
    if dataset.units is None:
        return known
    return np.isin(dataset.units, dataset.units[known])


def unused_part(dataset: Dataset, used: bytes, how_to_leave: str) -> Dataset:
    """Return the images that are neither in a set nor in a group with one that is, or raise."""
    left, doubt = part_not_in(dataset, used), doubt_of(dataset.identities, used)
    if doubt or left is None:
        raise RelookError(
            f"{dataset.name}: expected images that the search has neither used nor held out, got "
            f"{'some for which that is not known' if doubt else 'none'}: {how_to_leave}"
        )
    return left


def part_not_in(dataset: Dataset, seen: bytes) -> Dataset | None:
    """Return the images that are neither in a set nor in a group with one that is, if any."""
    left = np.flatnonzero(~_known(dataset, seen))
    return dataset.subset(left) if len(left) else None


def left_out_note(dataset: Dataset, left: int) -> str:
    """Return a note on how many images of a data set are used."""
    return (
        f"{dataset.name}: {left:,} of its {len(dataset):,} images are used; the policy, its "
        "temperatures or weights were found on the others"
    )


def check_unused(dataset: Dataset, used: bytes, how_to_allow: str) -> None:
    """Raise if images to fit on were used before: on these a policy does better than on others."""
    again = np.flatnonzero(is_in(dataset.identities, used))
    if len(again):
        raise RelookError(
            f"{dataset.name}: {len(again):,} of its {len(dataset):,} images (image {again[0]} "
            f"first) were used to find the policy or to compare it: give others, or {how_to_allow}"
        )


def doubt_of(identities: Identities, seen: bytes) -> str:
    """Return a sentence if images might be in a set without being recognised, else nothing."""
    why = why_unknown(identities, seen)
    if not why:
        return ""
    return f"Whether the policy was found on some of these images cannot be known: {why}."


def apart(validation: Dataset, dataset: Dataset) -> Dataset:
    """Return the validation images without those that are scored; raise if none are left."""
    again = is_in(validation.identities, set_of(dataset.identities))
    if again.all():
        raise RelookError(
            f"{validation.name}: expected other images for validation than those of "
            f"{dataset.name}, which are compared on, got the same"
        )
    return validation.subset(np.flatnonzero(~again)) if again.any() else validation
