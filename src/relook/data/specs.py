"""Data sets by name: `digits:test`, `npz:FILE` …, one table; and the groups of their images."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from relook.data.base import Column, Dataset, checked_groups
from relook.data.cifar import CIFAR10, CIFAR100, load_cifar
from relook.data.corrupted import load_cifarc, load_imagenetc
from relook.data.csv_file import load_csv
from relook.data.digits import load_digits
from relook.data.folder import load_folder
from relook.data.hf_data import FORM as HF_FORM
from relook.data.hf_data import load_hf_data
from relook.data.idx import load_idx
from relook.data.npz import load_npz
from relook.data.prepare import Preparation, fitted
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.registry import by_name
from relook.io.arrays import read_npy
from relook.io.files import one_line


@dataclass(frozen=True)
class DataSource:
    """One row: `load` gets what follows `prefix:`, and what is said of the images' size.

    `form` shows how a spec looks.
    """

    prefix: str
    form: str
    load: Callable[[str, Preparation], Dataset]
    bare: bool = False
    """Whether the prefix alone is a spec."""
    prepares: bool = False
    """Whether `load` has brought the images to their size and channels."""


def load_data(spec: str, preparation: Preparation | None = None) -> Dataset:
    """Return the data set that a spec names, its images prepared as asked."""
    wanted = preparation or Preparation()
    if not spec.isprintable():
        raise RelookError(f"expected a data spec of printable characters, got {spec!r}")
    prefix, _, rest = spec.partition(":")
    source = DATA_SOURCES.get(prefix)
    if source is None:
        raise unknown_name("data source", prefix, DATA_SOURCES)
    if not rest and not (source.bare and spec == prefix):
        raise RelookError(f"expected a data set as {source.form}, got {spec!r}")
    dataset = source.load(rest, wanted)
    if (dataset.labels == dataset.labels[0]).all():
        only = dataset.classes[dataset.labels[0]]
        raise RelookError(
            f"{spec}: expected images of at least two classes, but all {len(dataset)} "
            f"are labelled {only!r}"
        )
    return dataset if source.prepares else fitted(dataset, wanted)


def read_groups(spec: str, dataset: Dataset) -> Column:
    """Return which images belong together, as ids `[n]`.

    `spec` is `groups` or another column of the data set, or a file with one id per image: an
    `.npy` array, a text file with one id per line, or `FILE.csv?column=NAME` for a table with
    a heading.
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


def _whole(load: Callable[[str], Dataset]) -> Callable[[str, Preparation], Dataset]:
    """Adapt a source whose images have one size."""
    return lambda rest, _: load(rest)


_CORRUPTED = "?corruption=NAME&severity=1…5"
_ROWS = (
    DataSource("digits", "digits, digits:train or digits:test", _whole(load_digits), bare=True),
    DataSource("npz", "npz:FILE[?layout=nchw|nhwc|nhw]", _whole(load_npz)),
    DataSource("folder", "folder:DIR", load_folder, prepares=True),
    DataSource("csv", "csv:FILE", load_csv, prepares=True),
    DataSource(
        "cifar10", "cifar10:DIR[?part=test|train|all]", _whole(partial(load_cifar, CIFAR10))
    ),
    DataSource(
        "cifar100", "cifar100:DIR[?part=test|train|all]", _whole(partial(load_cifar, CIFAR100))
    ),
    DataSource("idx", "idx:DIR[?part=test|train]", _whole(load_idx)),
    DataSource("hf", HF_FORM, load_hf_data, prepares=True),
    DataSource("cifar10c", f"cifar10c:DIR{_CORRUPTED}", _whole(partial(load_cifarc, 10))),
    DataSource("cifar100c", f"cifar100c:DIR{_CORRUPTED}", _whole(partial(load_cifarc, 100))),
    DataSource("imagenetc", f"imagenetc:DIR{_CORRUPTED}", load_imagenetc, prepares=True),
)


DATA_SOURCES = by_name(_ROWS, key="prefix")
"""All data sources by the prefix of their specs."""
