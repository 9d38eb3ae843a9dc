"""Which images belong together (one patient, one video …): a column of the data, or a file."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from relook.data.base import Column, Dataset, checked_groups
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.arrays import read_npy
from relook.io.files import one_line


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
