"""Images without labels, of any kind, and without those that a claim is made on."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relook.data import Dataset, Preparation, as_dataset
from relook.deploy.batch.image_source import open_source
from relook.errors import RelookError
from relook.evaluation.unseen import doubt_of
from relook.io.identities import is_in, set_of
from relook.transforms.full_images import FullImages

_CLASSES = ("not known", "neither")  # a data set has labels: here they say nothing


def read_unlabelled(images: Any, wanted: Preparation, name: str = "images") -> Dataset:
    """Return images of any kind as a data set whose labels mean nothing.

    A text names them as for `relook predict`: a folder at any depth, files:LIST, npz:FILE …
    """
    if isinstance(images, str | Path):
        return _from_source(str(images), wanted)
    if isinstance(images, Dataset):
        return images
    bare = isinstance(images, Tensor | np.ndarray | FullImages | list)
    labels = np.zeros(len(images), np.int64) if bare else None
    return as_dataset(images, labels, preparation=wanted, name=name)


def without_proof(dataset: Dataset, proof: Dataset) -> tuple[Dataset, int, str]:
    """Leave images out that are among the labelled ones; return how many, and what is in doubt."""
    used = set_of(proof.identities)
    again = is_in(dataset.identities, used)
    left = np.flatnonzero(~again)
    if not len(left):
        raise RelookError(
            f"{dataset.name}: expected images besides those that the gain is shown on, got these "
            "alone: give others"
        )
    doubt = doubt_of(dataset.identities, used)
    if doubt:
        doubt = "Whether the student has learned from some of these images cannot be known."
    return dataset if len(left) == len(dataset) else dataset.subset(left), int(again.sum()), doubt


def _from_source(spec: str, wanted: Preparation) -> Dataset:
    source = open_source(spec, wanted)
    whole = range(len(source.names))
    found: list[Tensor | FullImages] = []
    places: list[int] = []
    # Photos at full size come as one; others in blocks, so that they are never held twice.
    with closing(source.read([whole] if wanted.full_size else source.ranges())) as blocks:
        for block in blocks:
            if len(block.images):
                found.append(block.images)
                places += block.places
    if not places:
        raise RelookError(f"{spec}: expected images, got none that can be read")
    known = source.identify(places)
    labels = np.zeros(len(places), np.int64)
    return Dataset(_joined(found, len(places), known), labels, _CLASSES, spec, identities=known)


def _joined(parts: list[Tensor | FullImages], count: int, identities: Any) -> Tensor | FullImages:
    first = parts[0]
    if isinstance(first, FullImages):
        # Stored predictions belong to images, which are known by their files.
        return replace(first, fingerprints=np.array([f"{one:016x}" for one in identities]))
    joined = torch.empty((count, *first.shape[1:]), dtype=torch.uint8)
    begin = 0
    while parts:
        part = parts.pop(0)
        joined[begin : begin + len(part)] = part  # type: ignore[assignment]
        begin += len(part)
    return joined
