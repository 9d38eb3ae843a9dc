"""Converts images of any kind to a data set."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from relook.data.arrays import CHANNELS, layout_of, to_nchw
from relook.data.base import (
    Column,
    Dataset,
    are_numbers,
    check_class_count,
    checked_groups,
    numbered_classes,
    read_classes,
    with_classes,
)
from relook.data.hf_data import from_hf, is_hf_data
from relook.data.prepare import Preparation, fitted
from relook.data.specs import full_spec, load_data
from relook.data.torch_pairs import from_torch
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.arrays import read_npy
from relook.io.files import one_line
from relook.transforms.checks import grey_levels
from relook.transforms.full_images import FullImages


def as_dataset(
    images: Any,
    labels: ArrayLike | None = None,
    *,
    classes: Sequence[str] | str | Path | None = None,
    groups: ArrayLike | str | None = None,
    preparation: Preparation | None = None,
    like: Dataset | None = None,
    outputs: int | None = None,
    name: str = "images",
) -> Dataset:
    """Return anything that has images and labels as a data set.

    With `labels`, images are an array or a tensor (uint8, or floats in 0…1; `[n, c, h, w]`,
    `[n, h, w, c]` or `[n, h, w]`) or a list of PIL images. Without, they are a data set of relook,
    torch or Hugging Face, a DataLoader, a spec such as `folder:DIR`, or a directory with a folder
    per class. `classes` are names in the model's order, or their file; `groups` are ids `[n]`, a
    column or a file. `like` is a data set to take size and classes from, `outputs` the number of
    the model's classes.
    """
    wanted = preparation or Preparation()
    if like is not None:
        channels, height, width = like.images.shape[1:]
        wanted = replace(wanted, size=(height, width), channels=channels)
    elif classes is None:
        wanted = replace(wanted, outputs=outputs)
    dataset = _read(images, labels, wanted, name)
    named = not are_numbers(dataset.classes)
    in_memory = data_spec(images) is None  # then numbered labels are indices into the names
    if isinstance(classes, str | Path):
        dataset = with_classes(dataset, read_classes(classes, outputs), str(classes))
    elif classes is not None:
        dataset = _named(dataset, tuple(map(str, classes)), "classes", in_memory)
    elif like is not None and like.classes != dataset.classes and (in_memory or named):
        dataset = _named(dataset, like.classes, like.name, in_memory)
    check_class_count(dataset, outputs)
    if groups is None:
        return dataset
    ids = read_groups(groups, dataset) if isinstance(groups, str) else np.asarray(groups)
    return replace(dataset, groups=ids)


def as_images(images: Any) -> Tensor:
    """Return images of any kind as uint8 `[n, c, h, w]`; labels are not needed."""
    bare = _is_array(images) or isinstance(images, list)
    return as_dataset(images, np.zeros(len(images), np.int64) if bare else None).plain


def channels_first(images: Any) -> Any:
    """Return an array or a tensor as `[n, c, h, w]`, by its shape; anything else as it is."""
    if not isinstance(images, Tensor | np.ndarray):
        return images
    if images.ndim == 4 and images.shape[1] in CHANNELS:
        return images
    return _to_uint8(images, "images")


def data_spec(images: object) -> str | None:
    """Return the spec of images given by a spec or a path, else None."""
    return full_spec(str(images)) if isinstance(images, str | Path) else None


def prepared_for(images: object, wanted: Preparation, model: object) -> Preparation:
    """Return how images are prepared for a model: arrays and data sets only as wanted."""
    return wanted if _is_array(images) or isinstance(images, Dataset) else wanted.for_model(model)


def _read(images: Any, labels: ArrayLike | None, wanted: Preparation, name: str) -> Dataset:
    if _is_array(images):
        if labels is None:
            raise RelookError(
                f"{name}: expected labels with a {type(images).__name__}, got none: give both, as "
                "in relook.search(model, images, labels)"
            )
        numbers = np.asarray(labels.cpu() if isinstance(labels, Tensor) else labels)
        levels = images if isinstance(images, FullImages) else _to_uint8(images, name)
        dataset = Dataset(levels, numbers, numbered_classes(numbers, name), name)
        changed = wanted.size or wanted.channels or wanted.crop
        return fitted(dataset, wanted) if changed and isinstance(levels, Tensor) else dataset
    if isinstance(images, list | tuple) and labels is not None:
        numbers = np.asarray(labels)
        if len(numbers) != len(images):
            raise RelookError(f"{name}: expected {len(images)} labels, got {len(numbers)}")
        pairs = list(zip(images, numbers, strict=True))
        return from_torch(pairs, preparation=wanted, name=name)
    if labels is not None:
        raise RelookError(
            f"{name}: expected no labels with a {type(images).__name__}, which brings its own"
        )
    if isinstance(images, Dataset):
        return images
    spec = data_spec(images)
    if spec is not None:
        return load_data(spec, wanted)
    if is_hf_data(images):
        return from_hf(images, wanted)
    return from_torch(images, preparation=wanted, name=name)


def _is_array(images: object) -> bool:
    return isinstance(images, Tensor | np.ndarray | FullImages)


def _to_uint8(images: Any, name: str) -> Tensor:
    """Return an array or a tensor as uint8 `[n, c, h, w]`."""
    found = torch.from_numpy(np.array(images)) if isinstance(images, np.ndarray) else images.cpu()
    if found.is_floating_point():
        found = grey_levels(found, f"{name}: ")
    layout = layout_of(tuple(found.shape), name, "give a tensor [n, c, h, w]")
    return to_nchw(found.numpy(), layout, name)


def _named(dataset: Dataset, names: tuple[str, ...], where: str, in_memory: bool) -> Dataset:
    """Relabel a data set in the order of names."""
    if in_memory and are_numbers(dataset.classes):
        return replace(dataset, classes=names)
    return with_classes(dataset, names, where)


def read_groups(spec: str, dataset: Dataset) -> Column:
    """Return the ids `[n]` of groups of images.

    `spec` is `groups` or another column of the data set, or a file with one id per image: an
    `.npy` array, a text file with one id per line, or `FILE.csv?column=NAME`, a table with a
    heading.
    """
    known = {**dataset.columns, **({} if dataset.groups is None else {"groups": dataset.groups})}
    if spec in known:
        return checked_groups(known[spec], len(dataset), f"{dataset.name}: {spec}")
    name, _, option = spec.partition("?")
    path = Path(name).expanduser()
    if not path.is_file():
        columns = ", ".join(sorted(known)) or "none"
        raise RelookError(
            f"expected a column of {dataset.name} or a file with one group id per image, got "
            f"{spec!r}: no such file; columns: {columns}"
        )
    ids = read_npy(path) if path.suffix == ".npy" else _read_text(path, option)
    return checked_groups(ids, len(dataset), str(path))


def _read_text(path: Path, option: str) -> Column:
    key, _, column = option.partition("=")
    if option and (key != "column" or not column):
        raise RelookError(f"expected {path}?column=NAME, got {path}?{option}")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file, strict=True) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise FileFormatError(f"{path}: expected text with one id per line: {error}") from None
    place = 0
    if column:
        heading, rows = (rows[0], rows[1:]) if rows else ([], [])
        if column not in heading:
            raise unknown_name(f"column of {path}", column, map(one_line, heading))
        place = heading.index(column)
    ids = [_cell(path, row, place, number, column) for number, row in enumerate(rows, 1)]
    return np.array(ids, dtype=str)


def _cell(path: Path, row: list[str], place: int, number: int, column: str) -> str:
    if not column and len(row) != 1:
        raise FileFormatError(
            f"{path}: expected one id per line, got {len(row)} values in line {number}: "
            f"for a table with a heading say {path}?column=NAME"
        )
    if place >= len(row) or not row[place].strip():
        raise FileFormatError(f"{path}: expected an id in row {number}, got nothing")
    return row[place].strip()
