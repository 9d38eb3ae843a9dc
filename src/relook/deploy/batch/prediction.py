"""Predicts many images, block by block: an interrupted run resumes and ends in the same file.

The file (CSV, JSON or Parquet) gets its name when it is complete.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.deploy.batch.image_source import ImageBlock, ImageSource
from relook.deploy.tta import TTA
from relook.errors import FileFormatError, MissingExtraError, RelookError, RunError, unknown_name
from relook.evaluation.results import csv_text
from relook.foundation.progress import Progress
from relook.io.files import csv_safe, one_line, write_text_atomic
from relook.io.fingerprint import fingerprint
from relook.io.records import Kind
from relook.io.run_directory import RunDirectory
from relook.numerics.metrics import entropy

ClassName = str | int

_REPEATED = 8  # images, to check that the model is unchanged
_TOLERANCE = 0.01  # of a probability; other batches and threads differ by far less
_ROW_GROUP = 4096  # of a Parquet file

FIGURES = ("entropy", "uncalibrated_entropy", "uncalibrated_mutual_information")
"""The figures written for an image besides its classes; the last two are uncalibrated."""
EXIT_FIGURES = ("entropy", "views")
"""The figures with an early exit."""


@dataclass(frozen=True)
class Prediction:
    """One image's result: the likeliest classes with their probabilities, and figures by name."""

    file: str
    classes: tuple[ClassName, ...]
    probabilities: tuple[float, ...]
    figures: Mapping[str, int | float]

    @property
    def shares(self) -> list[tuple[ClassName, float]]:
        """Pairs of class and probability; two classes may have the same name."""
        return list(zip(self.classes, self.probabilities, strict=True))


@dataclass(frozen=True)
class Predicted:
    """The result of a run: how many images were predicted, and the files that cannot be read."""

    out: Path
    images: int
    faults: tuple[tuple[str, str], ...]
    faults_file: Path | None


@dataclass(frozen=True)
class _Part:
    """A finished block: its predictions, and the files that cannot be read, with the reason."""

    predictions: tuple[Prediction, ...]
    faults: tuple[tuple[str, str], ...]


_PARTS = Kind(_Part, "relook-predicted-part", 1, "predictions", checksum=True)


def predict_source(
    tta: TTA,
    source: ImageSource,
    out: Path,
    *,
    model: str,
    top: int = 5,
    skip_bad: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> Predicted:
    """Predict every image of a source and write the `top` classes of each to `out`.

    `model` is the model's fingerprint. Finished blocks are kept in a directory next to `out`, from
    which the same call resumes after any interruption; it is removed at the end. With an early
    exit, the number of views of an image is written next to its classes.
    """
    writer_for(out)
    if out.exists() and not force:
        raise RelookError(f"{out} exists: give another --out, or --force to overwrite it")
    work = out.with_name(f"{out.name}.unfinished")
    with RunDirectory(work) as directory:
        directory.check_settings(
            {
                "model": model,
                "policy": tta.plan.record(),
                "images": source.fingerprint,
                "prepared": source.prepared,
                "block": source.block,
                "batch": tta.max_batch,
                "top": top,
                "classes": None if tta.classes is None else fingerprint(list(tta.classes)),
                "early_exit": None if tta.early_exit is None else tta.early_exit.to_json(),
            }
        )
        _predict_blocks(tta, source, directory.path, top, skip_bad, progress)
        faults = tuple(fault for part in _parts(source, directory.path) for fault in part.faults)
        images = len(source.names) - len(faults)
        if not images:
            raise FileFormatError(f"none of the {len(faults):,} files can be read as an image")
        faults_file = out.with_name(f"{out.name}.bad.csv") if faults else None
        if faults_file is not None:
            write_text_atomic(faults_file, csv_text(["file", "reason"], faults))
        rows = (row for part in _parts(source, directory.path) for row in part.predictions)
        first = next(rows)
        figures = FIGURES if tta.early_exit is None else EXIT_FIGURES
        write_predictions(out, chain([first], rows), len(first.classes), figures)
        _remove(work)
    return Predicted(out, images, faults, faults_file)


def _remove(work: Path) -> None:
    """Remove the directory, under another name: no call may resume from half of it."""
    gone = work.with_name(f".{work.name}.removed")
    try:
        shutil.rmtree(gone, ignore_errors=True)
        work.rename(gone)
        shutil.rmtree(gone)
    except OSError as error:
        reason = error.strerror or str(error)
        raise RelookError(
            f"cannot remove {one_line(str(work))}, which is no longer needed: {reason}"
        ) from None


def _predict_blocks(
    tta: TTA,
    source: ImageSource,
    directory: Path,
    top: int,
    skip_bad: bool,
    progress: Progress | None,
) -> None:
    missing = [part for part in source.ranges() if _stored(directory, part) is None]
    _check_model_unchanged(tta, source, directory, top, missing)
    done = len(source.names) - sum(map(len, missing))
    if progress is not None:
        progress(done, len(source.names))
    with closing(source.read(missing)) as blocks:
        for part, block in zip(missing, blocks, strict=True):
            if block.faults and not skip_bad:
                place, reason = next(iter(block.faults.items()))
                raise FileFormatError(
                    f"{source.names[place]} cannot be read as an image: {reason}; repair or remove "
                    "it, or leave such files out with --skip-bad"
                )
            faults = tuple((source.names[i], why) for i, why in block.faults.items())
            done_part = _Part(_rows(tta, source, block, top), faults)
            _PARTS.write(_part_file(directory, part.start), done_part)
            done += len(part)
            if progress is not None:
                progress(done, len(source.names))


def _check_model_unchanged(
    tta: TTA, source: ImageSource, directory: Path, top: int, missing: list[range]
) -> None:
    """Raise if the model, although its weights are the same, no longer predicts the same."""
    done = next((part for part in source.ranges() if part not in missing), None)
    if done is None:
        return
    stored = {one.file: dict(one.shares) for one in _read(directory, done).predictions}
    with closing(source.read([done[:_REPEATED]])) as blocks:
        rows = [row for block in blocks for row in _rows(tta, source, block, top)]
    for row in rows:
        before = stored.get(row.file, {})
        for name, share in dict(row.shares).items():
            if abs(before.get(name, share) - share) > _TOLERANCE:
                raise RunError(
                    f"the model no longer answers as it did when {directory} was begun "
                    f"({row.file}, class {name}: {before[name]:.3f}, now {share:.3f}): delete "
                    f"{directory} to start again"
                )


def _rows(tta: TTA, source: ImageSource, block: ImageBlock, top: int) -> tuple[Prediction, ...]:
    """Return a block's predictions, rounded so that reading them back changes nothing."""
    if not block.places:
        return ()
    try:
        probabilities, figures = _predict(tta, block)
    except RelookError as error:
        ends = (source.names[block.places[0]], source.names[block.places[-1]])
        raise RelookError(f"the model failed between {' and '.join(ends)}: {error}") from error
    names = tta.classes or range(probabilities.shape[1])
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    return tuple(
        Prediction(
            source.names[place],
            tuple(names[c] for c in order[i]),
            tuple(_rounded(probabilities[i, c]) for c in order[i]),
            {name: _rounded(values[i]) for name, values in figures.items()},
        )
        for i, place in enumerate(block.places)
    )


def _predict(tta: TTA, block: ImageBlock) -> tuple[NDArray[np.float32], dict[str, NDArray[Any]]]:
    """Return probabilities `[n, class]`, and figures `[n]` by name."""
    if tta.early_exit is not None:
        exited = tta.exit_early(block.images)
        probabilities = np.exp(exited.log_probs).astype(np.float32)
        values = (entropy(exited.log_probs), exited.views)
        return probabilities, dict(zip(EXIT_FIGURES, values, strict=True))
    parts = [
        tta.view_log_probs(block.images[rows.start : rows.stop], block.places[rows.start])
        for rows in _consecutive(tta, block.places)
    ]
    log_probs = np.concatenate([part.cpu().numpy() for part in parts], axis=1)
    found = tta.plan.uncertainty(log_probs)
    figures = (found.entropy, found.predictive_entropy, found.mutual_information)
    return tta.probabilities(log_probs), dict(zip(FIGURES, figures, strict=True))


def _consecutive(tta: TTA, places: tuple[int, ...]) -> list[range]:
    """Cut a block at gaps left by bad files: fresh draws depend on an image's place."""
    if tta.plan.is_fixed:
        return [range(len(places))]
    cuts = [i for i in range(1, len(places)) if places[i] != places[i - 1] + 1]
    return [range(*pair) for pair in pairwise([0, *cuts, len(places)])]


def _rounded(number: np.generic) -> float:
    """Round to six digits, as more differ between machines; integers stay integers."""
    return int(number) if isinstance(number, np.integer) else float(f"{number:.6g}")


def _parts(source: ImageSource, directory: Path) -> Iterator[_Part]:
    return (_read(directory, part) for part in source.ranges())


def _read(directory: Path, part: range) -> _Part:
    content = _stored(directory, part)
    if content is None:
        raise RunError(
            f"{_part_file(directory, part.start)} is missing or damaged: run the same command again"
        )
    return content


def _stored(directory: Path, part: range) -> _Part | None:
    """Return a finished block, None if it is missing or damaged."""
    try:
        return _PARTS.read(_part_file(directory, part.start))
    except FileFormatError:
        return None


def _part_file(directory: Path, start: int) -> Path:
    return directory / f"part-{start:09d}.json"


Writer = Callable[[Path, Iterable[Prediction], Sequence[str]], None]


def writer_for(path: Path) -> Writer:
    """Return the writer for a file name; raise if its library is missing."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise RelookError(f"--out: {unknown_name('kind of file', path.suffix, WRITERS)}")
    if writer is _write_parquet:
        _pyarrow()
    return writer


def write_predictions(
    path: Path, rows: Iterable[Prediction], top: int, figures: Sequence[str] = FIGURES
) -> None:
    """Write rows of `top` classes and these figures each, whole or not at all."""
    writer = writer_for(path)
    with _replacing(path) as unfinished:
        writer(unfinished, rows, columns(top, figures))


def columns(top: int, figures: Sequence[str] = FIGURES) -> list[str]:
    """Return the names of the columns."""
    pairs = chain.from_iterable((f"class_{i}", f"probability_{i}") for i in range(1, top + 1))
    return ["file", *pairs, *figures]


def _cells(row: Prediction) -> list[Any]:
    return [row.file, *chain.from_iterable(row.shares), *row.figures.values()]


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
            classes = [{"class": name, "probability": p} for name, p in row.shares]
            content = {"file": row.file, "classes": classes, **row.figures}
            file.write(("," if i else "") + "\n  ")
            file.write(json.dumps(content, ensure_ascii=False, allow_nan=False))
        file.write("\n]\n")


def _write_parquet(path: Path, rows: Iterable[Prediction], heads: Sequence[str]) -> None:
    arrow, parquet = _pyarrow()
    remaining = iter(rows)
    group = list(islice(remaining, _ROW_GROUP))
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
            group = list(islice(remaining, _ROW_GROUP))


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "writing a .parquet file") from None
    return pyarrow, pyarrow.parquet


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Yield a name to write to; the file is renamed to the path at the end."""
    # The same name in each run: the next one overwrites the file of a killed one.
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
"""Writers of predictions by file suffix."""
