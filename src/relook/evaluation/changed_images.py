"""Images that show what a policy does: gained and lost ones, and a few to look at."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.comparison import ChangedImage, Comparison
from relook.io.files import write_bytes_atomic
from relook.numerics.arrays import FloatArray, Labels
from relook.numerics.randomness import uniforms

MOST_CHANGED = 12
GALLERY = 6

_GALLERY_SLOT = 1 << 31  # away from the slots that views are drawn with


def changed_images(
    before: FloatArray, after: FloatArray, labels: Labels, indices: NDArray[np.int64]
) -> tuple[tuple[ChangedImage, ...], tuple[ChangedImage, ...]]:
    """Return the images that turned right and those that turned wrong, the most changed first.

    `before` and `after` are log-probabilities `[n, c]`; the change is that of the true
    class's probability. `indices` `[n]` are what the images are called by.
    """
    first, last = before.argmax(axis=1), after.argmax(axis=1)
    rows = np.arange(len(labels))
    old, new = np.exp(before[rows, labels]), np.exp(after[rows, labels])

    def listed(chosen: NDArray[np.bool_]) -> tuple[ChangedImage, ...]:
        places = np.flatnonzero(chosen)
        order = places[np.argsort(-np.abs(new - old)[places], kind="stable")]
        return tuple(
            ChangedImage(
                index=int(indices[i]),
                label=int(labels[i]),
                before=int(first[i]),
                after=int(last[i]),
                probability_before=float(old[i]),
                probability_after=float(new[i]),
            )
            for i in order
        )

    was_right, is_right = first == labels, last == labels
    return listed(~was_right & is_right), listed(was_right & ~is_right)


def gallery_of(indices: NDArray[np.int64], seed: int) -> tuple[int, ...]:
    """Return a few of the images, drawn by the seed, in rising order."""
    lots = uniforms(seed, image=indices, slot=_GALLERY_SLOT)
    return tuple(sorted(int(i) for i in indices[np.argsort(lots, kind="stable")[:GALLERY]]))


def save_comparison(
    directory: str | Path,
    comparison: Comparison,
    dataset: Dataset,
    indices: ArrayLike | None = None,
) -> None:
    """Write comparison.json, and examples.npz with the images that it names.

    `dataset` is what the comparison's indices point into; for a part of it, `indices` `[n]`
    are the places of its images, as they were given to `compare`. examples.npz holds
    `indices` `[m]`, uint8 `images` `[m, c, h, w]` and `labels` `[m]`; it is written first,
    each file whole or not at all.
    """
    directory = Path(directory)
    named = [one.index for one in (*comparison.gained, *comparison.lost)]
    wanted = np.array(sorted({*comparison.gallery, *named}), dtype=np.int64)
    known = np.arange(len(dataset)) if indices is None else np.asarray(indices)
    places = {int(index): place for place, index in enumerate(known)}
    missing = [int(index) for index in wanted if int(index) not in places]
    if missing:
        raise RelookError(
            f"expected the data set that the comparison was made on, got {dataset.name} with "
            f"{len(dataset)} images and no image {missing[0]}: give the indices too, as to "
            "compare"
        )
    rows = np.array([places[int(index)] for index in wanted], dtype=np.int64)
    chosen = dataset.subset(rows)
    _check_labels(comparison, dict(zip(wanted.tolist(), chosen.labels.tolist(), strict=True)))
    file = io.BytesIO()
    np.savez(file, indices=wanted, images=chosen.plain.cpu().numpy(), labels=chosen.labels)
    write_bytes_atomic(directory / "examples.npz", file.getvalue())
    comparison.save(directory / "comparison.json")


def _check_labels(comparison: Comparison, labels: dict[int, int]) -> None:
    for one in (*comparison.gained, *comparison.lost):
        if labels[one.index] != one.label:
            raise RelookError(
                f"expected the data set that the comparison was made on: image {one.index} has "
                f"the label {labels[one.index]}, not {one.label}"
            )
