"""Names of classes in a model's order, and data sets whose labels are brought into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from relook.data.base import Dataset, are_numbers
from relook.errors import FileFormatError, RelookError
from relook.io.files import describe, one_line, read_bytes, read_json

_LARGEST_FILE = 64_000_000
_MOST_CLASSES = 1_000_000
_NAMES_SHOWN = 3


def read_classes(path: str | Path, outputs: int | None = None) -> tuple[str, ...]:
    """Return the names of a model's outputs, in its order.

    The file is text with one name per line, or JSON `{"name": index}`; indices that JSON leaves
    out, up to the model's `outputs`, are called by their number.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() == ".json":
        return _from_json(path, outputs or 0)
    data = read_bytes(path, what="one class name per line", max_bytes=_LARGEST_FILE)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: expected class names in UTF-8, got other bytes") from None
    names = [line.strip() for line in text.rstrip().splitlines()]
    if "" in names:
        raise FileFormatError(
            f"{path}: expected one class name per line, but line {names.index('') + 1} is empty"
        )
    return _unique(names, path)


def with_classes(dataset: Dataset, names: Sequence[str], where: str) -> Dataset:
    """Relabel a data set so that its labels are places in `names`.

    Labels that are numbers without names keep their value. A class that has images and no
    place in `names` raises.
    """
    if not is_named(dataset) and not set(dataset.classes) <= set(names):
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
            more = ", …" if len(missing) > _NAMES_SHOWN else ""
            raise RelookError(
                f"{where}: expected every class of {dataset.name}, but {len(missing)} of "
                f"{len(used)} are not in it: {', '.join(missing[:_NAMES_SHOWN])}{more}"
            )
        order = np.array([place.get(name, 0) for name in dataset.classes])
    return replace(dataset, labels=order[dataset.labels], classes=tuple(names))


def is_named(dataset: Dataset) -> bool:
    """Whether the classes have names, rather than the numbers of their labels."""
    return not are_numbers(dataset.classes)


def _from_json(path: Path, outputs: int) -> tuple[str, ...]:
    content = read_json(path, what="class names with their indices")
    if not isinstance(content, dict) or not content:
        raise FileFormatError(
            f'{path}: expected JSON like {{"cat": 0, "dog": 1}}, got {describe(content)}'
        )
    by_index: dict[int, str] = {}
    for name, index in content.items():
        if type(index) is not int or not 0 <= index < _MOST_CLASSES or index in by_index:
            raise FileFormatError(
                f"{path}: expected an index of its own from 0 for {describe(name)}, "
                f"got {describe(index)}"
            )
        by_index[index] = name.strip()
    count = max(max(by_index) + 1, outputs)
    return _unique([by_index.get(i, f"class {i}") for i in range(count)], path)


def _unique(names: list[str], path: Path) -> tuple[str, ...]:
    shown = [one_line(name) for name in names]
    seen: set[str] = set()
    for name in shown:
        if name in seen:
            raise FileFormatError(f"{path}: expected each class once, but {name!r} is there twice")
        seen.add(name)
    if len(shown) < 2:
        raise FileFormatError(f"{path}: expected at least two classes, got {len(shown)}")
    return tuple(shown)


def names_of(classes: tuple[str, ...], outputs: int | None) -> tuple[str, ...] | None:
    """Return classes as the names of a model's outputs, where there is one for each.

    Bare numbers may be the labels' own, fewer than the outputs: they count where that is known.
    """
    known = outputs is None and not are_numbers(classes)
    return classes if known or outputs == len(classes) else None
