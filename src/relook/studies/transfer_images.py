"""Images that no policy's search saw: what is left of a data set for a fair transfer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from relook.data import Dataset
from relook.errors import RelookError
from relook.io.fingerprint import fingerprint
from relook.numerics.splits import search_split
from relook.policy_search.held_out import held_out_part
from relook.policy_search.job import FEWEST_HELD_OUT
from relook.policy_search.run_record import RunRecord, load_run, searched_images


def unseen_images(dataset: Dataset, spec: str, policies: Sequence[Path]) -> NDArray[np.int64]:
    """Return the places of the images that none of the policies was searched on.

    A search's record is run.json next to the policy; a policy without one saw nothing here.
    `spec` is where the data set was read from, for images that a search saw at another size.
    """
    kept = np.arange(len(dataset))
    for path in policies:
        if (path.parent / "run.json").is_file():
            kept = np.intersect1d(kept, _unseen_by(path, dataset, spec))
    if len(kept) < FEWEST_HELD_OUT:
        raise RelookError(
            f"{dataset.name}: expected at least {FEWEST_HELD_OUT} images that no policy was "
            f"searched on, got {len(kept)}: search with the same seed and split, or give other "
            "images with --data"
        )
    return kept


def _unseen_by(path: Path, dataset: Dataset, spec: str) -> NDArray[np.int64]:
    searched = searched_images(path.parent)
    if not searched:  # a run without the list: its settings say which
        found = held_out_part(path, dataset)
        return np.arange(len(dataset)) if found is None else found.split.held_out
    seen = np.array([one in searched for one in dataset.image_fingerprints()])
    record = load_run(path.parent)
    if not seen.any() and record.origin.get("data") == spec:
        return _unseen_at_another_size(record, dataset)
    return np.flatnonzero(~seen)


def _unseen_at_another_size(record: RunRecord, dataset: Dataset) -> NDArray[np.int64]:
    """Return what a search of the same files, read in another way, did not see."""
    holdout, seed = record.settings.get("holdout"), record.settings.get("seed")
    left_out = record.settings.get("left_out", 0.0)
    if record.settings.get("test") is None and isinstance(seed, int):
        searched, held_out = search_split(
            dataset.labels, float(holdout or 0), float(left_out), seed, dataset.groups
        )
        if fingerprint(held_out) == record.split.get("held_out_fingerprint"):
            return np.setdiff1d(np.arange(len(dataset)), searched)
    raise RelookError(
        f"{dataset.name} is what {record.path} was searched on, at another size, and which of its "
        "images that search saw cannot be known: give other images with --data"
    )
