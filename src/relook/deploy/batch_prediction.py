"""Predicting many images, block by block: an interrupted run goes on and ends in the same file."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from relook.deploy.image_source import Block, ImageSource
from relook.deploy.prediction_files import (
    Prediction,
    same_names,
    write_faults,
    write_predictions,
    writer_for,
)
from relook.deploy.tta import TTA
from relook.deploy.uncertainty import uncertainty
from relook.errors import FileFormatError, RelookError
from relook.files import read_json, write_json_atomic
from relook.fingerprint import fingerprint
from relook.run_directory import RunDirectory

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Predicted:
    """What a run wrote: how many predictions, and the files that could not be read."""

    out: Path
    images: int
    faults: tuple[tuple[str, str], ...]
    faults_file: Path | None


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

    `model` is the model's fingerprint. Blocks that are done wait in a directory beside `out`,
    which the same call goes on from, whatever ended the last one; it is removed at the end.
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
                "images": source.mark,
                "prepared": source.prepared,
                "block": source.block,
                "batch": tta.max_batch,
                "top": top,
                "classes": None if tta.classes is None else fingerprint(list(tta.classes)),
            }
        )
        _predict_blocks(tta, source, directory.path, top, skip_bad, progress)
        faults = tuple((row[0], row[1]) for row in _faults(source, directory.path))
        images = len(source.names) - len(faults)
        if not images:
            raise FileFormatError(f"none of the {len(faults):,} files can be read as an image")
        count = len(next(_predictions(source, directory.path)).classes)
        write_predictions(out, _predictions(source, directory.path), count)
        faults_file = out.with_name(f"{out.name}.bad.csv") if faults else None
        if faults_file is not None:
            write_faults(faults_file, faults)
        shutil.rmtree(work)
    return Predicted(out, images, faults, faults_file)


def _predict_blocks(
    tta: TTA,
    source: ImageSource,
    directory: Path,
    top: int,
    skip_bad: bool,
    progress: Progress | None,
) -> None:
    missing = [part for part in source.ranges() if not _part(directory, part.start).exists()]
    done = len(source.names) - sum(map(len, missing))
    if progress is not None:
        progress(done, len(source.names))
    with closing(source.read(missing)) as blocks:
        for part, block in zip(missing, blocks, strict=True):
            if block.faults and not skip_bad:
                place, reason = next(iter(block.faults.items()))
                raise FileFormatError(
                    f"{source.names[place]} cannot be read as an image: {reason}; mend or remove "
                    "it, or leave such files out with --skip-bad"
                )
            content = {
                "predictions": _rows(tta, source, block, top) if block.places else [],
                "faults": [[source.names[i], why] for i, why in block.faults.items()],
            }
            write_json_atomic(_part(directory, part.start), content)
            done += len(part)
            if progress is not None:
                progress(done, len(source.names))


def _rows(tta: TTA, source: ImageSource, block: Block, top: int) -> list[list[object]]:
    """Return the block's predictions as plain rows, exact when they are read again."""
    log_probs = np.concatenate(
        [
            tta.view_log_probs(block.images[rows.start : rows.stop], block.places[rows.start])
            .cpu()
            .numpy()
            for rows in _runs(tta, block.places)
        ],
        axis=1,
    )
    unsure = uncertainty(log_probs, np.array(tta.plan.counts), tta.temperature)
    probabilities = tta.probabilities(log_probs)
    names = same_names(tta.classes, probabilities.shape[1])
    order = np.argsort(-probabilities, axis=1, kind="stable")[:, :top]
    return [
        [
            source.names[place],
            [names[c] for c in order[i]],
            [_short(probabilities[i, c]) for c in order[i]],
            _short(unsure.entropy[i]),
            _short(unsure.mutual_information[i]),
        ]
        for i, place in enumerate(block.places)
    ]


def _runs(tta: TTA, places: tuple[int, ...]) -> list[range]:
    """Cut a block where bad files left a gap: fresh draws belong to an image's place."""
    if tta.plan.is_fixed:
        return [range(len(places))]
    cuts = [i for i in range(1, len(places)) if places[i] != places[i - 1] + 1]
    return [range(*pair) for pair in pairwise([0, *cuts, len(places)])]


def _short(number: float) -> float:
    """Keep six digits: more differ from machine to machine."""
    return float(f"{number:.6g}")


def _predictions(source: ImageSource, directory: Path) -> Iterator[Prediction]:
    for part in source.ranges():
        for file, classes, shares, entropy, information in _read(directory, part)["predictions"]:
            yield Prediction(file, tuple(classes), tuple(shares), entropy, information)


def _faults(source: ImageSource, directory: Path) -> Iterator[list[str]]:
    for part in source.ranges():
        yield from _read(directory, part)["faults"]


def _read(directory: Path, part: range) -> dict[str, list[Any]]:
    path = _part(directory, part.start)
    content = read_json(path, what="predictions of a run that goes on")
    if not isinstance(content, dict) or content.keys() != {"predictions", "faults"}:
        raise FileFormatError(f"{path}: expected predictions: delete {directory} and start again")
    return content


def _part(directory: Path, start: int) -> Path:
    return directory / f"part-{start:09d}.json"
