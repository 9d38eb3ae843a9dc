"""Scikit-learn's handwritten digits: real data that needs no download."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from relook.data.base import Dataset
from relook.errors import unknown_name
from relook.numerics.randomness import uniforms

SIDE = 32
TRAIN_SHARE = 0.1
_SPLIT_SEED = 8
_PARTS = ("", "train", "test")


def load_digits(part: str = "") -> Dataset:
    """Return the 1797 digits, 32×32 grey, or their `train` (10 %) or `test` (90 %) part.

    The parts are drawn class by class, the same on every machine; most go to `test`, for a
    search and its proof need more images than the small network does.
    """
    if part not in _PARTS:
        raise unknown_name("part of digits", part, _PARTS[1:])
    from sklearn.datasets import load_digits as load_bunch  # takes a second to import

    bunch = load_bunch()
    labels = bunch.target.astype(np.int64)
    images = torch.from_numpy(np.stack([_enlarged(image) for image in bunch.images]))
    digits = Dataset(images[:, None], labels, tuple("0123456789"), "digits")
    if not part:
        return digits
    train = _in_train(labels)
    places = np.flatnonzero(train if part == "train" else ~train)
    return replace(digits.subset(places), name=f"digits:{part}")


def _enlarged(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Turn 8×8 levels 0…16 into 32×32 levels 0…255, smoothly."""
    levels = np.rint(image * (255 / 16)).astype(np.uint8)
    return np.array(Image.fromarray(levels).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _in_train(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    lots = uniforms(_SPLIT_SEED, image=np.arange(len(labels)))
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = members[np.argsort(lots[members], kind="stable")]
        train[order[: round(TRAIN_SHARE * len(members))]] = True
    return train
