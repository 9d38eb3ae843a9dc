"""Predictions made elsewhere: arrays and labels from npy, npz, Zarr and text files."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import zarr
from numpy.typing import NDArray

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.memory import size_text
from relook.io.arrays import check_memory, map_npy, read_npy, read_npz
from relook.io.files import one_line
from relook.numerics.calibration import LOG_FLOOR
from relook.predictions.store import Predictions

Kind = Literal["log_probs", "probabilities"]
KINDS: tuple[str, ...] = get_args(Kind)

# Codecs that pack numbers; other codecs of Zarr unpickle, or make objects.
_PACKERS = ("zstd", "gzip", "zlib", "blosc", "lz4", "bz2", "lzma")
_CODECS = {"bytes", "endian", "crc32c", "transpose", "sharding_indexed", "shuffle", *_PACKERS}
_MAX_COMPRESSION = 1000  # predictions and labels never shrink as far
_SMALL = 1 << 24
_FEW_FILES = 10_000


def open_predictions(path: Path, kind: Kind) -> Predictions:
    """Return log-probabilities `[candidate, image, class]` from a file that holds `kind`.

    An `.npy` file of log-probabilities need not fit into memory; the others must.
    """
    if kind not in KINDS:
        raise unknown_name("kind of predictions", kind, KINDS)
    array = map_npy(path) if path.suffix == ".npy" else _open(path, ("predictions", kind))
    shape = tuple(array.shape)
    if len(shape) != 3 or np.dtype(array.dtype).kind != "f":
        raise FileFormatError(
            f"{path}: expected floats [candidate, image, class], got {array.dtype} {list(shape)}"
        )
    dtype = np.dtype(array.dtype)
    if kind == "probabilities":
        dtype = np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)
        return Predictions(shape, dtype, lambda: _logarithms(array, dtype, path))
    mapped = (lambda: array) if path.suffix == ".npy" else None
    return Predictions(shape, dtype, lambda: _read(array), mapped)


def file_identity(path: Path) -> list[int]:
    """Return counts, bytes and times, which show whether a file or directory has changed."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    stats = [file.stat() for file in files]
    return [
        len(stats),
        sum(stat.st_size for stat in stats),
        max((stat.st_mtime_ns for stat in stats), default=0),
    ]


def _read(array: Any) -> NDArray[Any]:
    """Return an array in memory, read from disk if necessary."""
    if type(array) is np.ndarray:
        return array
    try:
        return np.array(array[:])
    except Exception as error:  # codecs raise many kinds for damaged chunks
        raise FileFormatError(
            f"{_zarr_path(array)}: cannot be read: {_error_text(error)}"
        ) from None


def _logarithms(array: Any, dtype: np.dtype[Any], path: Path) -> NDArray[Any]:
    """Return the floored logarithms of probabilities, candidate after candidate."""
    source = array if isinstance(array, np.memmap) else _read(array)
    in_place = source.dtype == dtype and source.flags.writeable
    result = source if in_place else np.empty(source.shape, dtype)
    for candidate, values in enumerate(source):
        if not (values >= 0).all():
            raise FileFormatError(
                f"{path}: expected probabilities ≥ 0, got a negative number or NaN at candidate "
                f"{candidate}; use --kind log_probs if these are log-probabilities"
            )
        with np.errstate(divide="ignore"):
            np.log(values, out=result[candidate], dtype=dtype)
        np.maximum(result[candidate], LOG_FLOOR, out=result[candidate])
    return result


def load_labels(path: Path) -> NDArray[np.int64]:
    """Return labels `[image]` from an npy, npz or Zarr file, or from text with one per line."""
    if path.suffix in (".txt", ".csv"):
        return _labels_from_text(path)
    labels = _read(_open(path, ("labels",)))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise FileFormatError(
            f"{path}: expected whole numbers [image], got {labels.dtype} {list(labels.shape)}"
        )
    return labels.astype(np.int64)


def _open(path: Path, names: tuple[str, ...]) -> Any:
    """Return an array in memory, or a Zarr array that is read on use."""
    if not path.exists():
        raise RelookError(f"no such file: {path}")
    if path.is_dir():
        return _open_zarr(path)
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


def _open_zarr(path: Path) -> zarr.Array[Any]:
    """Open a Zarr array of plain numbers whose codecs only pack them."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = zarr.open_array(path, mode="r")
        names = set(_codec_names(array.metadata.to_dict()))
        shape, dtype = array.shape, np.dtype(array.dtype)
        blocks = (shape, array.chunks, array.shards or ())  # a block is read whole
    except Exception as error:  # zarr raises many kinds for a bad file
        raise FileFormatError(f"{path}: expected a Zarr array: {_error_text(error)}") from None
    unsafe = sorted(names - _CODECS)
    if dtype.kind not in "fiu" or unsafe:
        got = f"the codec {unsafe[0]!r:.40}" if unsafe else str(dtype)
        raise FileFormatError(f"{path}: expected a Zarr array of plain numbers, got {got}")
    largest = max(blocks, key=math.prod)
    nbytes = math.prod(largest) * dtype.itemsize
    check_memory(nbytes, path)
    files = [file.stat().st_size for file in path.rglob("*") if file.is_file()]
    held = sum(files)
    if nbytes > max(_SMALL, _MAX_COMPRESSION * held):
        what = "chunks are missing" if largest == shape else "its chunks are too large"
        raise FileFormatError(
            f"{path}: declares {list(largest)}, {size_text(nbytes)}, but holds {size_text(held)}: "
            f"{what}"
        )
    each = array.shards or array.chunks
    if len(each) != len(shape) or min(each, default=1) < 1:
        raise FileFormatError(f"{path}: expected chunks for {list(shape)}, got {list(each)}")
    parts = math.prod(-(-side // most) for side, most in zip(shape, each, strict=True))
    if parts > max(_FEW_FILES, 2 * len(files)):  # missing chunks take memory too
        raise FileFormatError(
            f"{path}: declares {parts:,} chunks, but holds {len(files):,} files: chunks are missing"
        )
    return array


def _codec_names(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs in an array's metadata, of Zarr 2 or 3, at any depth."""
    for key in ("codecs", "index_codecs", "filters", "compressor"):
        found = metadata.get(key) or ()
        for codec in found if isinstance(found, list | tuple) else (found,):
            yield str(codec.get("name", codec.get("id")))
            yield from _codec_names(codec.get("configuration") or {})


def _zarr_path(array: Any) -> str:
    return one_line(str(getattr(array.store, "root", array.store)))


def _error_text(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return one_line(f"{type(error).__name__}: {first}"[:300])


def _labels_from_text(path: Path) -> NDArray[np.int64]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split()
        return np.array([int(line) for line in lines], dtype=np.int64)
    except (OSError, UnicodeDecodeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{path}: expected one whole number per line: {error}") from None
