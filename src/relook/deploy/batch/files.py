"""Predictions as CSV, JSON or Parquet: streamed, and under their name only when they are whole."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relook.errors import MissingExtraError, RelookError, unknown_name
from relook.io.files import csv_safe, one_line

ClassName = str | int

_GROUP = 4096  # rows of a Parquet file that are written together

FIGURES = ("entropy", "uncalibrated_entropy", "uncalibrated_mutual_information")
"""What is written about an image besides its classes: the last two are before the temperature."""
EXIT_FIGURES = ("entropy", "views")
"""The same where each image gets as many views as it needs."""


@dataclass(frozen=True)
class Prediction:
    """One image's result: the likeliest classes with their probabilities, and figures by name."""

    file: str
    classes: tuple[ClassName, ...]
    probabilities: tuple[float, ...]
    figures: Mapping[str, int | float]


Writer = Callable[[Path, Iterable[Prediction], Sequence[str]], None]


def writer_for(path: Path) -> Writer:
    """Return what writes a file of this name; what it needs must be there."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise RelookError(f"--out: {unknown_name('kind of file', path.suffix, WRITERS)}")
    if writer is _write_parquet:
        _pyarrow()
    return writer


def write_predictions(
    path: Path, rows: Iterable[Prediction], top: int, figures: Sequence[str] = FIGURES
) -> None:
    """Write the rows, of `top` classes and these figures each, whole or not at all."""
    writer = writer_for(path)
    with _replacing(path) as unfinished:
        writer(unfinished, rows, columns(top, figures))


def columns(top: int, figures: Sequence[str] = FIGURES) -> list[str]:
    """Return the names of the columns."""
    pairs = chain.from_iterable((f"class_{i}", f"probability_{i}") for i in range(1, top + 1))
    return ["file", *pairs, *figures]


def write_faults(path: Path, faults: Iterable[tuple[str, str]]) -> None:
    """Write which files could not be read, and why, as CSV."""
    with _replacing(path) as unfinished, unfinished.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "reason"])
        writer.writerows((csv_safe(name), csv_safe(reason)) for name, reason in faults)


def _cells(row: Prediction) -> list[Any]:
    pairs = zip(row.classes, row.probabilities, strict=True)
    return [row.file, *chain.from_iterable(pairs), *row.figures.values()]


def _write_csv(path: Path, rows: Iterable[Prediction], heads: Sequence[str]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(heads)
        for row in rows:
            writer.writerow([csv_safe(v) if isinstance(v, str) else v for v in _cells(row)])


def _write_json(path: Path, rows: Iterable[Prediction], heads: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("[")
        for i, row in enumerate(rows):
            pairs = zip(row.classes, row.probabilities, strict=True)
            content = {
                "file": row.file,
                "classes": [{"class": name, "probability": p} for name, p in pairs],
                **row.figures,
            }
            file.write(("," if i else "") + "\n  ")
            file.write(json.dumps(content, ensure_ascii=False, allow_nan=False))
        file.write("\n]\n")


def _write_parquet(path: Path, rows: Iterable[Prediction], heads: Sequence[str]) -> None:
    arrow, parquet = _pyarrow()
    remaining = iter(rows)
    group = list(islice(remaining, _GROUP))
    name = arrow.int64() if isinstance(group[0].classes[0], int) else arrow.string()
    kinds = {"file": arrow.string(), "views": arrow.int64()}
    kinds |= {head: name for head in heads if head.startswith("class_")}
    schema = arrow.schema([(head, kinds.get(head, arrow.float64())) for head in heads])
    with parquet.ParquetWriter(path, schema) as writer:
        while group:
            values = zip(*map(_cells, group), strict=True)
            arrays = [
                arrow.array(list(column), field.type)
                for column, field in zip(values, schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))
            group = list(islice(remaining, _GROUP))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "writing a .parquet file") from None
    return pyarrow, pyarrow.parquet


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a name to write to; what is there takes the path's place at the end."""
    # One name at each run: what a killed one leaves behind, the next one writes over.
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RelookError(f"cannot write {one_line(str(path))}: {reason}") from None
    finally:
        unfinished.unlink(missing_ok=True)


WRITERS: Mapping[str, Writer] = MappingProxyType(
    {".csv": _write_csv, ".json": _write_json, ".parquet": _write_parquet}
)
"""What writes predictions, by the ending of the file's name."""


def same_names(classes: Sequence[str] | None, count: int) -> list[ClassName]:
    """Return a name for each class: the given ones, or the numbers."""
    if classes is None:
        return list(range(count))
    if len(classes) != count:
        raise RelookError(
            f"expected a name for each of the model's {count} classes, got {len(classes)}: name "
            "them in the model's order with --classes FILE"
        )
    return list(classes)
