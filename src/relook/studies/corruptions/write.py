"""Write corrupted data sets in the published layouts, file by file, resumably."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.data.arrays import IDENTITIES
from relook.data.base import Dataset
from relook.data.corrupted import (
    CORRUPTIONS,
    LABELS,
    RECORD,
    SOURCES,
    CorruptionsRecord,
    check_corruptions,
    check_severities,
    without_endings,
)
from relook.errors import RelookError
from relook.foundation.progress import Progress, ProgressCount
from relook.io.files import write_bytes_atomic
from relook.io.run_directory import RunDirectory
from relook.numerics.randomness import check_seed
from relook.studies.corruptions.table import corrupt_images

_JPEG_QUALITY = 85  # ImageNet-C's
_PART = 256  # images to corrupt between two reports of progress


def write_arrays(
    dataset: Dataset,
    out: str | Path,
    *,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> list[Path]:
    """Write CIFAR-10-C's layout: `NAME.npy` `[severity · n, h, w, c]` each, and labels.npy.

    Existing files of the same data, seed and severities are kept; returns all files.
    """
    names, levels = check_corruptions(corruptions), check_severities(severities)
    clean = dataset.plain
    done = ProgressCount(len(names) * len(levels) * len(dataset), progress)
    with RunDirectory(out) as directory:
        _begin(directory, dataset, levels, seed, "arrays", np.arange(len(dataset)).astype(str))
        _save(directory.path / LABELS, np.tile(dataset.labels, len(levels)))
        paths = [directory.path / f"{name}.npy" for name in names]
        for name, path in zip(names, paths, strict=True):
            if path.is_file():
                done.add(len(levels) * len(dataset))
                continue
            stacked = [_corrupted(clean, name, level, seed, done) for level in levels]
            _save(path, np.concatenate(stacked).transpose(0, 2, 3, 1))
    return paths


def write_folders(
    dataset: Dataset,
    out: str | Path,
    *,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] | None = None,
    seed: int = 0,
    jpeg: bool = False,
    progress: Progress | None = None,
) -> list[Path]:
    """Write ImageNet-C's layout: `NAME/SEVERITY/CLASS/FILE`, as PNG or as JPEG of quality 85.

    The data set's column `path` names class and file. Existing files are kept; returns the folders
    of the corruptions.
    """
    if "path" not in dataset.columns:
        raise RelookError(f"expected images from folder:DIR for folders, got {dataset.name}")
    names, levels = check_corruptions(corruptions), check_severities(severities)
    files = _files(dataset, ".jpg" if jpeg else ".png")
    clean = dataset.plain
    done = ProgressCount(len(names) * len(levels) * len(dataset), progress)
    with RunDirectory(out) as directory:
        _begin(directory, dataset, levels, seed, "jpeg" if jpeg else "png", without_endings(files))
        for name in names:
            for level in levels:
                _write_folder(clean, directory.path / name / str(level), files, seed, done)
    return [directory.path / name for name in names]


def write_npz(
    dataset: Dataset,
    path: str | Path,
    corruption: str,
    severity: int,
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> None:
    """Write the images under one corruption at one severity as a file for `npz:FILE`."""
    (name,), (level,) = check_corruptions([corruption]), check_severities([severity])
    images = _corrupted(
        dataset.plain, name, level, check_seed(seed), ProgressCount(len(dataset), progress)
    )
    _save(
        Path(path),
        images=images.transpose(0, 2, 3, 1),
        labels=dataset.labels,
        classes=np.array(dataset.classes),
        **{IDENTITIES: dataset.identities},
    )


def _begin(
    directory: RunDirectory,
    dataset: Dataset,
    severities: tuple[int, ...],
    seed: int,
    kind: str,
    names: NDArray[np.str_],
) -> None:
    """Write the record of a folder and its sources; raises if it holds other corruptions."""
    record = CorruptionsRecord(
        dataset.fingerprint, len(dataset), severities, check_seed(seed), kind
    )
    directory.check_settings(CORRUPTIONS.to_json(record))
    CORRUPTIONS.write(directory.path / RECORD, record)
    _save(directory.path / SOURCES, names=names, identities=dataset.identities)


def _corrupted(
    clean: Tensor, name: str, severity: int, seed: int, done: ProgressCount
) -> NDArray[np.uint8]:
    corrupted = np.empty(tuple(clean.shape), dtype=np.uint8)
    for begin in range(0, len(clean), _PART):
        part = slice(begin, begin + _PART)
        places = np.arange(len(clean))[part]
        corrupted[part] = corrupt_images(
            clean[part], name, severity, seed=seed, indices=places
        ).numpy()
        done.add(len(places))
    return corrupted


def _write_folder(
    clean: Tensor, folder: Path, files: list[Path], seed: int, done: ProgressCount
) -> None:
    """Write one corruption at one severity; the folder's path names both."""
    name, level = folder.parent.name, int(folder.name)
    for place, file in enumerate(files):
        path = folder / file
        if not path.is_file():
            image = clean[place : place + 1]
            corrupted = corrupt_images(image, name, level, seed=seed, indices=[place])
            write_bytes_atomic(path, _encode(corrupted[0].numpy(), path.suffix))
        done.add(1)


def _files(dataset: Dataset, suffix: str) -> list[Path]:
    """Return each image's path within its class; raises if two differ only in their ending."""
    files = [Path(str(path)).with_suffix(suffix) for path in dataset.columns["path"]]
    seen: set[Path] = set()
    for file in files:
        if file.is_absolute() or ".." in file.parts:
            raise RelookError(f"{dataset.name}: expected paths inside of it, got {file}")
        if file in seen:
            raise RelookError(
                f"{dataset.name}: expected names that differ before their ending, got two for "
                f"{file.with_suffix('')}: rename one"
            )
        seen.add(file)
    return files


def _encode(levels: NDArray[np.uint8], suffix: str) -> bytes:
    picture = Image.fromarray(levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0).copy())
    file = io.BytesIO()
    if suffix == ".jpg":
        picture.save(file, "JPEG", quality=_JPEG_QUALITY)
    else:
        picture.save(file, "PNG")
    return file.getvalue()


def _save(path: Path, *array: NDArray[Any], **arrays: NDArray[Any]) -> None:
    """Write one array as .npy, or several by name as .npz."""
    file = io.BytesIO()
    if array:
        np.save(file, np.ascontiguousarray(array[0]), allow_pickle=False)
    else:
        np.savez(file, allow_pickle=False, **arrays)
    write_bytes_atomic(path, file.getvalue())
