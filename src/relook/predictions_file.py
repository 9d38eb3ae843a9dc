"""Predictions that were made elsewhere: arrays and labels from npy, npz, Zarr and text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import zarr
from numpy.typing import NDArray

from relook.arrays import read_npy, read_npz
from relook.calibration import floor_log_probs
from relook.errors import FileFormatError, RelookError, unknown_name

Kind = Literal["log_probs", "probabilities"]
KINDS: tuple[str, ...] = get_args(Kind)


def load_predictions(path: Path, kind: Kind) -> NDArray[np.floating[Any]]:
    """Return log-probabilities `[candidate, image, class]` from a file that holds `kind`."""
    if kind not in KINDS:
        raise unknown_name("kind of predictions", kind, KINDS)
    array = _read(path, ("predictions", kind))
    if array.ndim != 3 or array.dtype.kind != "f":
        raise FileFormatError(
            f"{path}: expected floats [candidate, image, class], "
            f"got {array.dtype} {list(array.shape)}"
        )
    if kind == "log_probs":
        return array
    if not (array >= 0).all():
        raise FileFormatError(
            f"{path}: expected probabilities ≥ 0, got a negative number or NaN; "
            "say --kind log_probs if these are log-probabilities"
        )
    with np.errstate(divide="ignore"):
        return floor_log_probs(np.log(array))


def load_labels(path: Path) -> NDArray[np.int64]:
    """Return labels `[image]` from an npy, npz or Zarr file, or from text with one a line."""
    if path.suffix in (".txt", ".csv"):
        return _labels_from_text(path)
    labels = _read(path, ("labels",))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FileFormatError(
            f"{path}: expected whole numbers [image], got {labels.dtype} {list(labels.shape)}"
        )
    return labels.astype(np.int64)


def _read(path: Path, names: tuple[str, ...]) -> NDArray[Any]:
    if not path.exists():
        raise RelookError(f"no such file: {path}")
    if path.is_dir():
        return _read_zarr(path)
    if path.suffix == ".npy":
        return read_npy(path)
    if path.suffix != ".npz":
        raise FileFormatError(f"{path}: expected a file .npy or .npz, or a Zarr directory")
    arrays = read_npz(path)
    for name in names:
        if name in arrays:
            return arrays[name]
    if len(arrays) == 1:
        return next(iter(arrays.values()))
    raise FileFormatError(
        f"{path}: expected an array {' or '.join(map(repr, names))}, or a single one; "
        f"got {', '.join(sorted(arrays)) or 'none'}"
    )


def _read_zarr(path: Path) -> NDArray[Any]:
    try:
        array = zarr.open_array(path, mode="r")
        return np.asarray(array[:])
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        raise FileFormatError(
            f"{path}: expected a Zarr array: {type(error).__name__}: {why}"
        ) from None


def _labels_from_text(path: Path) -> NDArray[np.int64]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split()
        return np.array([int(line) for line in lines], dtype=np.int64)
    except (OSError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{path}: expected a whole number a line: {error}") from None
