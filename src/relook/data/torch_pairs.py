"""Data sets from torch: anything that yields images with labels, one at a time or in batches."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

from relook.data.base import Dataset, numbered_classes
from relook.data.prepare import (
    Preparation,
    check_memory,
    from_levels,
    is_grey,
    make_plan,
    own_levels,
    to_array,
)
from relook.errors import RelookError
from relook.foundation.memory import half_of_memory
from relook.io.files import describe
from relook.io.identities import pixel_identities
from relook.transforms.centre_crop import Size
from relook.transforms.checks import grey_levels

_KEYS = (("image", "img", "images", "pixel_values"), ("label", "labels"))
"""The keys of an image and of its label in data sets of dictionaries."""


def from_torch(
    source: Iterable[Any] | Any,
    *,
    preparation: Preparation | None = None,
    name: str = "torch data set",
) -> Dataset:
    """Return a torch data set, or the content of a DataLoader, as a data set of relook.

    It yields pairs (image, label) or, from a DataLoader, batches of them; dictionaries with Hugging
    Face's keys work too. An image is a PIL image, a tensor `[c, h, w]` or `[h, w]`, or an array
    `[h, w, c]` or `[h, w]`, of uint8 or floats in 0…1: leave the normalisation to the model.
    The classes are those of `source.classes`, which torchvision's data sets have, else numbers.
    """
    pairs = list(_pairs(source, name))
    if not pairs:
        raise RelookError(f"{name}: expected at least one image, got none")
    wanted = preparation or Preparation()
    sizes: list[Size] = [(image.height, image.width) for image, _ in pairs]
    plan = make_plan(sizes, all(is_grey(image) for image, _ in pairs), wanted, name)
    check_memory(len(pairs), plan, name)
    images = torch.empty((len(pairs), plan.channels, *plan.size), dtype=torch.uint8)
    rows, identities = images.numpy(), np.zeros(len(pairs), np.uint64)
    for i, (image, _) in enumerate(pairs):
        try:
            rows[i] = to_array(image, plan)
            identities[i : i + 1] = pixel_identities(own_levels(image)[None])
        except (OSError, ValueError) as error:
            raise RelookError(f"{name}: image {i} cannot be used: {error}") from None
    labels = np.array([label for _, label in pairs])
    inner = source.dataset if isinstance(source, DataLoader) else source
    names = getattr(inner, "classes", None)
    classes = numbered_classes(labels, "labels") if names is None else tuple(map(str, names))
    return Dataset(images, labels, classes, name, identities=identities)


def _pairs(source: Any, name: str) -> Iterator[tuple[Image.Image, int]]:
    held, half = 0, half_of_memory()
    for i, item in enumerate(_items(source, name)):
        where = f"{name}: image {i}"
        pair = _pair(item)
        if pair is None:
            raise RelookError(f"{where}: expected a pair (image, label), got {describe(item)}")
        image, label = _image(pair[0], where), _label(pair[1], where)
        held += image.width * image.height * len(image.getbands())
        if held > half:
            raise RelookError(
                f"{where}: expected images that fit half of this machine's memory "
                f"({half / 1e9:.1f} GB): resize them in the data set's transform"
            )
        yield image, label


def _items(source: Any, name: str) -> Iterator[Any]:
    """Yield one item after the other, in the same order each time."""
    if isinstance(source, DataLoader):
        if isinstance(source.sampler, RandomSampler | SubsetRandomSampler):
            raise RelookError(
                f"{name}: expected a DataLoader that keeps the order, got a shuffled one: give "
                "shuffle=False, or the data set itself (a torch Subset for a part of it)"
            )
        for batch in source:
            pair = _pair(batch)
            if pair is None:
                raise RelookError(
                    f"{name}: expected batches (images, labels), got {describe(batch)}"
                )
            yield from zip(*pair, strict=True)
    elif hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        for i in range(len(source)):
            yield source[i]
    elif isinstance(source, Iterable):
        yield from source
    else:
        raise RelookError(
            f"{name}: expected a torch Dataset or DataLoader, got {type(source).__name__}"
        )


def _pair(item: Any) -> tuple[Any, Any] | None:
    """Return image and label of an item, or images and labels of a batch; None if it has none."""
    if isinstance(item, Mapping):
        image, label = (next((item[k] for k in keys if k in item), None) for keys in _KEYS)
        return None if image is None or label is None else (image, label)
    return (item[0], item[1]) if isinstance(item, tuple | list) and len(item) >= 2 else None


def _image(image: object, where: str) -> Image.Image:
    if isinstance(image, Image.Image):
        return image
    if not isinstance(image, Tensor | np.ndarray):
        raise RelookError(
            f"{where}: expected a PIL image, a uint8 tensor or a uint8 array, "
            f"got {type(image).__name__}"
        )
    levels = np.asarray(image.detach().cpu() if isinstance(image, Tensor) else image)
    if levels.dtype.kind == "f":
        levels = grey_levels(torch.from_numpy(np.array(levels)), f"{where}: ").numpy()
    if levels.dtype != np.uint8:
        raise RelookError(
            f"{where}: expected uint8 levels 0…255 or floats in 0…1, got {levels.dtype}"
        )
    if levels.ndim == 2:
        levels = levels[None]
    elif levels.ndim == 3 and isinstance(image, np.ndarray):
        levels = np.moveaxis(levels, 2, 0)
    if levels.ndim != 3 or levels.shape[0] not in (1, 3) or 0 in levels.shape:
        shape = "[c, h, w]" if isinstance(image, Tensor) else "[h, w, c]"
        raise RelookError(
            f"{where}: expected {shape} with 1 or 3 channels, or [h, w]; got {list(image.shape)}"
        )
    return from_levels(levels)


def _label(label: object, where: str) -> int:
    try:
        return operator.index(label)  # type: ignore[arg-type]  # raises for other types
    except (TypeError, ValueError):
        raise RelookError(
            f"{where}: expected a label as a whole number, got {describe(label)}"
        ) from None
