"""Images that no policy's search saw: what is left of a data set for a fair transfer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relook.data import Dataset
from relook.evaluation.unseen import unseen_places
from relook.numerics.arrays import Indices
from relook.policy import Policy
from relook.policy_search.held_out import held_out_part


def unseen_images(dataset: Dataset, policies: Sequence[Path]) -> Indices:
    """Return the places of the images that none of the policies was found on.

    A policy says itself which it was found on, and the record of a search next to it which of
    its images were held out.
    """
    found = [Policy.load(path) for path in policies]
    splits = (held_out_part(path, dataset) for path in policies)
    return unseen_places(dataset, found, [one.split.held_out for one in splits if one is not None])
