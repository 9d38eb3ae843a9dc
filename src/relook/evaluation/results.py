"""Measurements as rows of one tidy table: the results of a comparison or a study."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from relook.errors import MissingExtraError, RelookError
from relook.io.files import csv_safe, write_bytes_atomic, write_text_atomic
from relook.io.records import Form, Kind, convert
from relook.numerics.intervals import Interval, mean_and_deviation

VERSION = 2
LARGEST = 1 << 28
"""The largest file of results that is read, in bytes."""

FIRST = ("study", "model", "data", "method", "label", "budget", "views")
LAST = ("metric", "value", "low", "high", "deviation")
DETAILS = ("versus", "run", "corruption", "severity")
"""Keys of rows that are a part of another row, or its difference to a third one."""


@dataclass(frozen=True)
class Result:
    """One number: a metric's mean over runs with its deviation, or a difference with its interval.

    `keys` describe the row: model, data, method, budget, views, corruption … A difference is this
    method minus another, whose kind is `keys["versus"]`.
    """

    metric: str
    value: float
    low: float | None = None
    high: float | None = None
    deviation: float = 0.0
    keys: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Any:
        return self.metric if key == "metric" else self.keys.get(key)

    @property
    def flat(self) -> dict[str, Any]:
        """The keys, and the numbers next to them."""
        return {**self.keys, **{name: getattr(self, name) for name in LAST}}

    @property
    def is_clear(self) -> bool:
        """Whether the interval of a difference excludes zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.4f}"
        return f"{self.value:+.4f} [{self.low:+.4f}, {self.high:+.4f}]"


@dataclass(frozen=True)
class Results:
    """Rows of one tidy table, with the settings behind them and the answer in words."""

    study: str
    rows: tuple[Result, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sentence: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, **wanted: Any) -> Results:
        """Return the rows with these keys; None: without the key; a tuple or list: any of these."""
        rows = tuple(row for row in self.rows if all(_fits(row[k], v) for k, v in wanted.items()))
        return replace(self, rows=rows)

    def get(self, **wanted: Any) -> Result | None:
        """Return the first row with these keys; parts and differences only if asked for."""
        asked = {**dict.fromkeys(DETAILS), **wanted}
        fitting = (r for r in self.rows if all(_fits(r[k], v) for k, v in asked.items()))
        return next(fitting, None)

    def one(self, **wanted: Any) -> Result:
        """Return the row with these keys, or raise if there is none."""
        found = self.get(**wanted)
        if found is None:
            asked = ", ".join(f"{key} {value!r}" for key, value in wanted.items())
            raise RelookError(f"{self.study}: expected a result with {asked}, got none")
        return found

    def values(self, key: str) -> list[Any]:
        """Return the distinct values of a key, in the rows' order."""
        return list(dict.fromkeys(row[key] for row in self.rows if row[key] is not None))

    def groups(self, *keys: str) -> Iterator[tuple[tuple[Any, ...], Results]]:
        """Yield the values of these keys with their rows, in the order of the first rows."""
        found: dict[tuple[Any, ...], list[Result]] = {}
        for row in self.rows:
            found.setdefault(tuple(row[key] for key in keys), []).append(row)
        for values, rows in found.items():
            yield values, replace(self, rows=tuple(rows))

    def labelled(self, **keys: Any) -> Results:
        """Return the results with these keys on every row."""
        rows = tuple(replace(row, keys={**row.keys, **keys}) for row in self.rows)
        return replace(self, rows=rows)

    @property
    def columns(self) -> list[str]:
        """The names of the tidy table's columns."""
        there = dict.fromkeys(key for row in self.rows for key in row.keys)
        first = [key for key in FIRST if key in there or key == "study"]
        return [*first, *(key for key in there if key not in FIRST), *LAST]

    def records(self) -> list[dict[str, Any]]:
        """Return a dictionary for each row, all with the same columns; missing values are None."""
        columns, flat = self.columns, ({"study": self.study, **row.flat} for row in self.rows)
        return [{name: one.get(name) for name in columns} for one in flat]

    def to_csv(self) -> str:
        """Return the tidy table as CSV without formulas."""
        return csv_text(self.columns, (record.values() for record in self.records()))

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data; `load_results` reads it back."""
        return _kind(self.study).to_json(self)

    def save(self, path: str | Path) -> None:
        """Write the results atomically: .json with settings, or .csv, or .parquet."""
        ending = Path(path).suffix
        if ending == ".csv":
            write_text_atomic(path, self.to_csv())
        elif ending == ".parquet":
            write_bytes_atomic(path, _parquet(self.records()))
        elif ending == ".json":
            _kind(self.study).write(path, self)
        else:
            raise RelookError(f"{path}: expected a name that ends in .json, .csv or .parquet")


def load_results(path: str | Path, study: str) -> Results:
    """Read a study's results as JSON, as `Results.save` wrote them."""
    return _kind(study).read(path, max_bytes=LARGEST)


def join(parts: Mapping[str, Results]) -> Results:
    """Return the results of several models, by name, as one table; one answer per line."""
    named = {name: one.labelled(model=name) for name, one in parts.items()}
    first = next(iter(named.values()))
    return Results(
        first.study,
        tuple(row for one in named.values() for row in one.rows),
        {name: dict(one.settings) for name, one in named.items()},
        "\n".join(f"{name}: {one.sentence}" for name, one in named.items() if one.sentence),
    )


def measured(metric: str, values: Any, **keys: Any) -> Result:
    """Return the mean of a metric over runs, with its deviation."""
    mean, deviation = mean_and_deviation(values)
    return Result(metric, mean, deviation=deviation, keys=keys)


def difference(metric: str, interval: Interval, **keys: Any) -> Result:
    """Return a difference with its interval."""
    return Result(metric, interval.estimate, interval.low, interval.high, keys=keys)


def csv_text(head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as CSV; text that a spreadsheet would take for a formula gets an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    for row in rows:
        writer.writerow([csv_safe(value) if isinstance(value, str) else value for value in row])
    return file.getvalue()


def _fits(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple | list) else value == wanted


def _rows_to_json(rows: Iterable[Result]) -> list[dict[str, Any]]:
    """Return each row's keys next to its numbers, without missing values."""
    return [{k: value for k, value in row.flat.items() if value is not None} for row in rows]


def _rows_from_json(content: object, where: str) -> tuple[Result, ...]:
    rows = []
    for one in convert(content, tuple[dict[str, Any], ...], where):
        numbers = {name: one.pop(name) for name in LAST if name in one}
        rows.append({**numbers, "keys": one})
    return convert(rows, tuple[Result, ...], where)


def _kind(study: str) -> Kind[Results]:
    what, forms = f"a study of {study}", {"rows": Form(_rows_to_json, _rows_from_json)}
    return Kind(Results, f"relook-{study}", VERSION, what, f"study {study}", forms=forms)


def _parquet(records: list[dict[str, Any]]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from None
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file)
    return file.getvalue()
