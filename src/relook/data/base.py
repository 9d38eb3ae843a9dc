"""The data set: images, labels, and what is known about each image."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, from_numpy

from relook.errors import FileFormatError, RelookError
from relook.foundation.wording import first_few
from relook.io.files import describe, one_line, read_bytes, read_json
from relook.io.fingerprint import fingerprint
from relook.io.identities import Identities, copy_numbers, pixel_identities
from relook.numerics.splits import joined_groups
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages, content_of, plain_views

Column = NDArray[Any]
_MOST_CLASSES = 1_000_000
_LARGEST_CLASS_FILE = 64_000_000

NO_CLASSES = ("not known", "neither")
"""Placeholders for the classes of images without labels: a data set must have some."""


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Labelled images, in memory and in order.

    `images` is uint8 `[n, c, h, w]`, or holds images of many shapes at full size; `labels` is
    int64 `[n]`, each an index into `classes`.
    `groups` are ids of images that belong together (one patient, one video …), whole numbers
    or text `[n]`; `columns` holds further columns of the source `[n]`. `prepared` says how relook
    brought the images to their size. `identities` identify the images however they are read: by
    their source (changed images keep these) or else by their pixels. Splits and counts use `units`.
    """

    images: Tensor | FullImages
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    name: str
    groups: Column | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)
    prepared: CentreCrop | None = None
    identities: Identities = field(default_factory=lambda: np.empty(0, np.uint64), repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.images, FullImages):
            object.__setattr__(self, "prepared", replace(self.images.plan, full_size=True))
        else:
            check_images(self.images, self.name)
        if len(self.images) == 0:
            raise RelookError(f"{self.name}: expected at least one image, got none")
        object.__setattr__(self, "classes", _checked_classes(self.classes, self.name))
        labels = _checked_labels(self.labels, len(self.images), len(self.classes), self.name)
        object.__setattr__(self, "labels", labels)
        if self.groups is not None:
            groups = checked_groups(self.groups, len(self.images), f"{self.name}: groups")
            object.__setattr__(self, "groups", groups)
        identities = _checked_identities(self.identities, self.images, self.name)
        object.__setattr__(self, "identities", identities)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.images.shape[1:]))
        return (
            f"Dataset({self.name!r}, {len(self):,} images of {shape}, {len(self.classes)} classes)"
        )

    @property
    def plain(self) -> Tensor:
        """The plain view of each image, uint8 `[n, c, h, w]`: itself, or the centre of a photo."""
        return plain_views(self.images)

    @cached_property
    def fingerprint(self) -> str:
        """A short text that identifies the content; the name is not part of it."""
        return fingerprint(content_of(self.images), self.labels, self.classes, self.groups)

    @property
    def source_fingerprint(self) -> str | None:
        """A text that identifies the images, their order and groups, however read; None: unknown.

        Labels are not part of it, as a model's order of classes changes them.
        """
        return fingerprint(self.identities, self.groups) if self.identities.all() else None

    @cached_property
    def units(self) -> Column | None:
        """Ids `[n]` shared by the images of a group and by copies of an image; None: all differ."""
        groups, copies = self.groups, copy_numbers(self.identities)
        if copies is None:
            return groups
        return copies if groups is None else joined_groups(groups, copies)

    def subset(self, indices: ArrayLike) -> Dataset:
        """Return the images at `indices`, in their order; the classes stay the same."""
        places = np.asarray(indices)
        if places.ndim != 1 or places.dtype.kind not in "iu":
            raise RelookError(
                f"{self.name}: expected indices as whole numbers [n], "
                f"got {places.dtype} {list(places.shape)}"
            )
        if places.size and (places.min() < 0 or places.max() >= len(self)):
            raise RelookError(
                f"{self.name}: expected indices from 0 to {len(self) - 1}, "
                f"got {places.min()} … {places.max()}"
            )
        places = places.astype(np.int64)
        return replace(
            self,
            images=self.images[from_numpy(places)],
            labels=self.labels[places],
            groups=None if self.groups is None else self.groups[places],
            columns={name: column[places] for name, column in self.columns.items()},
            identities=self.identities[places],
        )


def numbered_classes(labels: ArrayLike, where: str) -> tuple[str, ...]:
    """Return the names of numbered classes, at least two."""
    numbers = np.asarray(labels)
    whole = numbers.size > 0 and numbers.dtype.kind in "iu"  # `Dataset` refuses the rest
    highest = int(numbers.max()) if whole else 1
    if highest >= _MOST_CLASSES:
        raise RelookError(
            f"{where}: expected labels below {_MOST_CLASSES} unless classes are named, "
            f"got {highest}"
        )
    return tuple(map(str, range(max(1, highest) + 1)))


def named_labels(names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return labels `[n]` for a class name per image, and the sorted classes."""
    classes = sorted(set(names))
    place = {name: i for i, name in enumerate(classes)}
    return np.array([place[name] for name in names]), tuple(map(one_line, classes))


def checked_groups(groups: ArrayLike, images: int, where: str) -> Column:
    """Return group ids `[n]` as whole numbers or text, or raise."""
    ids = np.asarray(groups)
    if ids.dtype.kind not in "iuUS":
        raise RelookError(f"{where}: expected whole numbers or text as ids, got {ids.dtype}")
    if ids.shape != (images,):
        raise RelookError(f"{where}: expected {images} ids, one per image, got {_size(ids)}")
    return ids


def check_class_count(dataset: Dataset, outputs: int | None) -> None:
    """Raise if a model's outputs cannot be a data set's classes, as `check_classes` does."""
    low, high = int(dataset.labels.min()), int(dataset.labels.max())
    if low and high == outputs and are_numbers(dataset.classes):
        raise RelookError(
            f"{dataset.name}: labels go from {low} to {high}, expected 0 to {high - 1}, as the "
            f"model has {outputs} classes: subtract 1"
        )
    check_classes(dataset.classes, dataset.name, outputs)


def check_classes(classes: Sequence[str], where: str, outputs: int | None) -> None:
    """Raise unless there are as many outputs as classes, or more if classes have only numbers."""
    count = len(classes)
    if outputs is None or outputs == count or (outputs > count and are_numbers(classes)):
        return
    some = ', or JSON {"NAME": INDEX, …} for those in the data' if outputs > count else ""
    raise RelookError(
        f"expected as many classes in the data as the model has, got {count} in "
        f"{where} and {outputs} from the model: name the model's classes in its order "
        f"with classes (--classes FILE): one name per line, {outputs:,} lines{some}"
    )


def are_numbers(classes: Sequence[str]) -> bool:
    """Whether classes are named by their numbers: 0, 1, 2 …"""
    return tuple(classes) == tuple(map(str, range(len(classes))))


def read_classes(path: str | Path, outputs: int | None = None) -> tuple[str, ...]:
    """Return the names of a model's outputs, in its order.

    The file is text with one name per line, or JSON `{"name": index}`; missing indices, up to the
    model's `outputs`, are named `class INDEX`.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() == ".json":
        return _read_json_classes(path, outputs or 0)
    data = read_bytes(path, what="one class name per line", max_bytes=_LARGEST_CLASS_FILE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: expected class names in UTF-8, got other bytes") from None
    names = [line.strip() for line in text.rstrip().splitlines()]
    if "" in names:
        raise FileFormatError(
            f"{path}: expected one class name per line, but line {names.index('') + 1} is empty"
        )
    return _checked_names(names, path)


def with_classes(dataset: Dataset, names: Sequence[str], where: str) -> Dataset:
    """Relabel a data set so that its labels are indices into `names`.

    Labels of classes without names keep their value. A class with images that is not among `names`
    raises.
    """
    if are_numbers(dataset.classes) and not set(dataset.classes) <= set(names):
        order = np.arange(len(dataset.classes))
        if int(dataset.labels.max()) >= len(names):
            raise RelookError(
                f"{where}: expected a name for each class, got {len(names)}, but "
                f"{dataset.name} has the label {dataset.labels.max()}"
            )
    else:
        place = {name: i for i, name in enumerate(names)}
        used = [dataset.classes[label] for label in np.unique(dataset.labels)]
        missing = [name for name in used if name not in place]
        if missing:
            raise RelookError(
                f"{where}: expected every class of {dataset.name}, but {len(missing)} of "
                f"{len(used)} are not in it: {first_few(missing)}"
            )
        order = np.array([place.get(name, 0) for name in dataset.classes])
    return replace(dataset, labels=order[dataset.labels], classes=tuple(names))


def _read_json_classes(path: Path, outputs: int) -> tuple[str, ...]:
    content = read_json(path, what="class names with their indices")
    if not isinstance(content, dict) or not content:
        raise FileFormatError(
            f'{path}: expected JSON like {{"cat": 0, "dog": 1}}, got {describe(content)}'
        )
    by_index: dict[int, str] = {}
    for name, index in content.items():
        if type(index) is not int or not 0 <= index < _MOST_CLASSES or index in by_index:
            raise FileFormatError(
                f"{path}: expected a different index from 0 on for each class, "
                f"got {describe(index)} for {describe(name)}"
            )
        by_index[index] = name.strip()
    count = max(max(by_index) + 1, outputs)
    return _checked_names([by_index.get(i, f"class {i}") for i in range(count)], path)


def _checked_names(names: list[str], path: Path) -> tuple[str, ...]:
    shown = tuple(map(one_line, names))
    twice = _repeated(shown)
    if twice is not None:
        raise FileFormatError(f"{path}: expected each class once, but {twice!r} is there twice")
    if len(shown) < 2:
        raise FileFormatError(f"{path}: expected at least two classes, got {len(shown)}")
    return shown


def _repeated(names: tuple[str, ...]) -> str | None:
    return next((name for name, count in Counter(names).items() if count > 1), None)


def names_of(classes: tuple[str, ...], outputs: int | None) -> tuple[str, ...] | None:
    """Return classes as the names of a model's outputs, or None.

    Numbered classes count only if there is one per output, as labels may leave some out.
    """
    known = outputs is None and not are_numbers(classes)
    return classes if known or outputs == len(classes) else None


def identities_of(images: Tensor | FullImages) -> Identities:
    """Return the identities of images by their pixels; those of full-size images are unknown."""
    if isinstance(images, FullImages):
        return np.zeros(len(images), np.uint64)
    return pixel_identities(images)


def _checked_identities(
    identities: Identities, images: Tensor | FullImages, where: str
) -> Identities:
    """Return the given identities, checked, or else those of the images."""
    if not len(identities):
        return identities_of(images)
    if identities.shape != (len(images),) or identities.dtype != np.uint64:
        raise RelookError(
            f"{where}: expected {len(images)} identities, one per image, as uint64, got "
            f"{identities.dtype} {list(identities.shape)}"
        )
    return identities


def _checked_classes(classes: object, where: str) -> tuple[str, ...]:
    names = tuple(classes) if isinstance(classes, tuple | list) else ()
    if len(names) < 2 or not all(isinstance(name, str) for name in names):
        raise RelookError(
            f"{where}: expected the names of at least two classes, got {classes!r:.60}"
        )
    twice = _repeated(names)
    if twice is not None:
        raise RelookError(f"{where}: expected each class once, but {twice!r} is there twice")
    return names


def _checked_labels(labels: ArrayLike, images: int, classes: int, where: str) -> NDArray[np.int64]:
    values = np.asarray(labels)
    if values.dtype.kind not in "iu":
        got = str(values.dtype) if values.ndim == 1 else f"{values.dtype} of {_size(values)}"
        raise RelookError(f"{where}: expected labels as whole numbers, got {got}{_one_hot(values)}")
    if values.shape != (images,):
        raise RelookError(
            f"{where}: expected {images} labels, one per image, got {_size(values)}"
            f"{_one_hot(values)}"
        )
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= classes:
        raise RelookError(
            f"{where}: expected labels from 0 to {classes - 1} ({classes} classes), "
            f"got {low if low < 0 else high}"
        )
    return values.astype(np.int64)


def _one_hot(labels: Column) -> str:
    return ": for one-hot labels give labels.argmax(axis=1)" if labels.ndim == 2 else ""


def _size(array: Column) -> str:
    return str(len(array)) if array.ndim == 1 else f"shape {list(array.shape)}"
