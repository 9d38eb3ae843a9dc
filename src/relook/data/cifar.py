"""CIFAR-10 and CIFAR-100 as published by their authors: the Python and the binary version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relook.data.base import Column, Dataset
from relook.errors import FileFormatError, RelookError
from relook.foundation.registry import split_query
from relook.io.files import describe, one_line, read_bytes
from relook.io.safe_pickle import load_pickle

Batch = tuple[NDArray[np.uint8], list[Column]]
"""The pixels `[n, 3072]` and the labels of one file, fine ones first."""

_PIXELS = 3 * 32 * 32
_LARGEST_FILE = 400_000_000


@dataclass(frozen=True)
class CifarVersion:
    """The layout of one of the two data sets: its files, and the labels of an image."""

    name: str
    classes: int
    folders: tuple[str, ...]
    test: tuple[str, ...]
    train: tuple[str, ...]
    labels: tuple[str, ...]
    """The keys of the labels in the Python version."""
    label_bytes: tuple[int, ...]
    """The places of the labels, in the same order, in a record of the binary version."""
    names: tuple[str, str, str]
    """The Python version's file of names, the key in it, and the binary version's file."""


CIFAR10 = CifarVersion(
    "cifar10",
    10,
    ("cifar-10-batches-py", "cifar-10-batches-bin"),
    ("test_batch",),
    tuple(f"data_batch_{i}" for i in range(1, 6)),
    ("labels",),
    (0,),
    ("batches.meta", "label_names", "batches.meta.txt"),
)
CIFAR100 = CifarVersion(
    "cifar100",
    100,
    ("cifar-100-python", "cifar-100-binary"),
    ("test",),
    ("train",),
    ("fine_labels", "coarse_labels"),
    (1, 0),
    ("meta", "fine_label_names", "fine_label_names.txt"),
)


def load_cifar(version: CifarVersion, rest: str) -> Dataset:
    """Return a version from `DIR[?part=test|train|all]`, the test part by default.

    CIFAR-100's column `coarse` is the superclass.
    """
    parts = {"test": version.test, "train": version.train, "all": version.train + version.test}
    folder, options = split_query(rest, version.name, {"part": tuple(parts)})
    root = _find_root(version, Path(folder).expanduser())
    batches = [_read_batch(version, root, name) for name in parts[options.get("part", "test")]]
    images = np.concatenate([images for images, _ in batches]).reshape(-1, 3, 32, 32)
    labels = [np.concatenate(column) for column in zip(*(rows for _, rows in batches), strict=True)]
    columns = {"coarse": labels[1]} if len(labels) > 1 else {}
    name = f"{version.name}:{one_line(rest)}"
    return Dataset(
        torch.from_numpy(images), labels[0], _classes(version, root), name, columns=columns
    )


def _find_root(version: CifarVersion, folder: Path) -> Path:
    """Return the folder with the files: the given one, or the archive's folder in it."""
    first = version.test[0]
    places = [folder, *(folder / name for name in version.folders)]
    for place in places:
        names = version.test + version.train
        if any((place / f"{name}{end}").is_file() for name in names for end in _READERS):
            return place
    raise RelookError(
        f"{one_line(str(folder))}: expected the files of {version.name} ({first} or {first}.bin, "
        f"…), here or in {' or '.join(version.folders)}: unpack the archive there"
    )


def _read_batch(version: CifarVersion, root: Path, name: str) -> Batch:
    for end, read in _READERS.items():
        path = root / f"{name}{end}"
        if path.is_file():
            data = read_bytes(path, what=f"a batch of {version.name}", max_bytes=_LARGEST_FILE)
            return read(version, data, path)
    raise RelookError(f"{root}: expected the file {name} or {name}.bin of {version.name}, got none")


def _from_pickle(version: CifarVersion, data: bytes, path: Path) -> Batch:
    content = _text_keyed(load_pickle(data, str(path)), path)
    pixels = content.get("data")
    if (
        not isinstance(pixels, np.ndarray)
        or pixels.dtype != np.uint8
        or pixels.ndim != 2
        or pixels.shape[1] != _PIXELS
    ):
        raise FileFormatError(
            f"{path}: expected 'data' as uint8 [n, {_PIXELS}], got {_description(pixels)}"
        )
    return pixels, [_labels(content.get(key), key, len(pixels), path) for key in version.labels]


def _labels(values: object, key: str, count: int, path: Path) -> Column:
    numbers = values if isinstance(values, list) else []
    small = all(type(number) is int and 0 <= number < 256 for number in numbers)
    if not small or len(numbers) != count:
        raise FileFormatError(
            f"{path}: expected {key!r} as {count} small whole numbers, got {_description(values)}"
        )
    return np.array(numbers, dtype=np.int64)


def _from_binary(version: CifarVersion, data: bytes, path: Path) -> Batch:
    before = len(version.label_bytes)
    if not data or len(data) % (before + _PIXELS):
        raise FileFormatError(
            f"{path}: expected records of {before + _PIXELS} bytes, got {len(data):,} bytes: "
            "damaged or cut off"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, before + _PIXELS)
    labels = [records[:, place].astype(np.int64) for place in version.label_bytes]
    return records[:, before:], labels


_Reader = Callable[[CifarVersion, bytes, Path], Batch]
_READERS: dict[str, _Reader] = {"": _from_pickle, ".bin": _from_binary}


def _classes(version: CifarVersion, root: Path) -> tuple[str, ...]:
    """Return the names of the classes, or their numbers if the file of names is missing."""
    pickled, key, listed = version.names
    is_pickled = (root / pickled).is_file()
    path = root / (pickled if is_pickled else listed)
    if not path.is_file():
        return tuple(map(str, range(version.classes)))
    data = read_bytes(path, what="names of classes", max_bytes=_LARGEST_FILE)
    if is_pickled:
        found = _text_keyed(load_pickle(data, str(path)), path).get(key)
        names = [_text(name) for name in found] if isinstance(found, list) else []
    else:
        names = _text(data).split()
    if len(names) != version.classes:
        raise FileFormatError(f"{path}: expected {version.classes} names, got {len(names)}")
    return tuple(map(one_line, names))


def _text_keyed(content: object, path: Path) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise FileFormatError(f"{path}: expected a batch as a dict, got {describe(content)}")
    return {_text(key): value for key, value in content.items()}


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _description(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    return "nothing" if value is None else describe(value)
