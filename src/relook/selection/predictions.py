"""The predictions of a search: checked, tempered, and read from memory or disk."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.foundation.threads import available_cores
from relook.numerics.arrays import Labels, LogProbs
from relook.numerics.calibration import temper

SUSPECT = 0.98
"""Rows that are off by this share of the tolerance in float32 are checked again in float64."""

_PAGE = 4096  # direct reading needs offsets and lengths that are multiples of it


def normalised_within(log_probs: LogProbs) -> float:
    """Return the tolerance for the log of a row's sum, which is 0: float16 has 11 bits."""
    return 5e-3 if log_probs.dtype == np.float16 else 1e-3


def check_predictions(log_probs: LogProbs, labels: Labels) -> None:
    """Raise a RelookError unless predictions and labels can be searched.

    Predictions are normalised log-probabilities `[candidate, image, class]`, labels `[image]`.
    """
    check_shapes(log_probs, labels)
    check_rows(log_probs, range(len(log_probs)))


def check_shapes(log_probs: LogProbs, labels: Labels) -> None:
    """Raise a RelookError unless shapes, types and labels fit together."""
    if log_probs.ndim != 3 or log_probs.dtype.kind != "f":
        raise RelookError(
            "predictions: expected a float array [candidate, image, class], "
            f"got {log_probs.dtype} with shape {log_probs.shape}"
        )
    candidates, images, classes = log_probs.shape
    if candidates < 1 or images < 1 or classes < 2:
        raise RelookError(
            "predictions: expected at least 1 candidate, 1 image and 2 classes, "
            f"got {candidates}, {images} and {classes}"
        )
    _check_labels(labels, images, classes)


def check_rows(log_probs: LogProbs, candidates: Iterable[int]) -> None:
    """Raise a RelookError unless these candidates' rows are normalised log-probabilities."""
    for candidate in candidates:
        _check_rows(log_probs[candidate], candidate)


def _check_labels(labels: NDArray[Any], images: int, classes: int) -> None:
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise RelookError(
            f"labels: expected {images} whole numbers, one for each image of the predictions, "
            f"got {labels.dtype} with shape {labels.shape}"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise RelookError(
            f"labels: expected 0 to {classes - 1}, as the predictions have {classes} classes, "
            f"got {labels[wrong[0]]} at image {wrong[0]}"
        )


def _check_rows(log_probs: LogProbs, candidate: int) -> None:
    """Check one candidate's predictions `[n, c]`; NaN and +inf fail the same comparison."""
    within = normalised_within(log_probs)
    top = log_probs.max(axis=1)
    high = np.flatnonzero(~(top <= within))
    if len(high):
        raise RelookError(
            f"predictions: expected log-probabilities, which are at most 0, got {top[high[0]]} "
            f"at candidate {candidate}, image {high[0]}: pass the model's log_softmax"
        )
    with np.errstate(divide="ignore"):  # all probabilities 0: −inf is refused below
        total = np.log(np.exp(log_probs, dtype=np.float64).sum(axis=1))
    off = np.flatnonzero(np.abs(total) > within)
    if len(off):
        raise RelookError(
            "predictions: expected probabilities that sum to 1, got a sum of "
            f"{np.exp(total[off[0]]):.6g} at candidate {candidate}, image {off[0]}: "
            "pass the model's log_softmax"
        )


class TemperedMap:
    """Predictions mapped from disk, tempered when they are read."""

    def __init__(self, inner: LogProbs, view_temperature: float) -> None:
        self.inner, self._kappa = inner, view_temperature
        self.shape, self.size, self.ndim = inner.shape, inner.size, inner.ndim
        self.dtype = inner.dtype

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, key: Any) -> LogProbs:
        return self.tempered(self.inner[key])

    def tempered(self, log_probs: LogProbs) -> LogProbs:
        """Temper a part of the predictions: whole rows `[..., class]`."""
        return temper(log_probs, self._kappa).astype(self.dtype)


def tempered_pool(log_probs: LogProbs, view_temperature: float, threads: int | None) -> LogProbs:
    """Temper predictions `[candidate, image, class]`; at 1 they are returned as they are.

    Predictions in memory are copied, of the same type; those on disk stay there.
    """
    if view_temperature == 1.0:
        return log_probs
    if memory_map(log_probs) is not None:
        return cast(LogProbs, TemperedMap(log_probs, view_temperature))
    pool = np.empty(log_probs.shape, log_probs.dtype)

    def fill(candidate: int) -> None:
        check_rows(log_probs, (candidate,))  # tempering would hide what is not normalised
        pool[candidate] = temper(log_probs[candidate], view_temperature)

    with ThreadPoolExecutor(threads or available_cores()) as executor:
        list(executor.map(fill, range(len(pool))))
    return pool


def memory_map(array: NDArray[Any]) -> Any:
    """Return the memory map that an array is a view of, or None."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped.base, mmap.mmap):
        mapped = mapped.base
    return mapped if isinstance(mapped, np.memmap) else None


class RowReader:
    """Reads `[image, class]` parts of predictions `[candidate, image, class]`.

    A memory map's file is read directly, bypassing the page cache: reading 45 GB once through it
    costs more processor time than the search, and a map's pages count as this process's memory.
    """

    def __init__(self, log_probs: LogProbs | TemperedMap) -> None:
        self._log_probs: LogProbs
        self._convert: Callable[[LogProbs], NDArray[Any]]
        if isinstance(log_probs, TemperedMap):
            tempered = log_probs.tempered
            self._log_probs, self._convert = log_probs.inner, lambda part: readable(tempered(part))
        else:
            self._log_probs, self._convert = log_probs, readable
        self._buffers = threading.local()
        path, self._offset = _place_in_file(self._log_probs)
        self._file = _open_direct(path) if path else -1

    def part(self, candidate: int, images: slice) -> NDArray[Any]:
        """Return an array for the kernels, float16 as its bits (uint16).

        This thread's next call may overwrite it.
        """
        if self._file < 0:
            return self._convert(np.ascontiguousarray(self._log_probs[candidate, images]))
        _, count, classes = self._log_probs.shape
        dtype = self._log_probs.dtype
        row = classes * dtype.itemsize
        begin = self._offset + (candidate * count + images.start) * row
        length = (images.stop - images.start) * row
        values = np.frombuffer(self._bytes(begin, length), dtype, length // dtype.itemsize)
        return self._convert(values.reshape(-1, classes))

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _bytes(self, begin: int, length: int) -> memoryview:
        """Read bytes of the file into this thread's page-aligned buffer."""
        start = begin - begin % _PAGE
        wanted = -(-(begin + length - start) // _PAGE) * _PAGE
        buffer = getattr(self._buffers, "buffer", None)
        if buffer is None or len(buffer) < wanted:
            self._buffers.buffer = buffer = mmap.mmap(-1, wanted)
        done = 0
        while start + done < begin + length:
            got = os.preadv(self._file, [memoryview(buffer)[done:wanted]], start + done)
            if got == 0:
                raise EOFError("the file of the predictions has become shorter")
            done += got
        return memoryview(buffer)[begin - start : begin - start + length]


def readable(values: NDArray[Any]) -> NDArray[Any]:
    """Return float16 as its bits, which the kernels widen; other types as they are."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


def _place_in_file(array: NDArray[Any]) -> tuple[str, int]:
    """Return the file and offset of a memory map's values; an empty name for other arrays."""
    mapped = memory_map(array)
    if mapped is None or not mapped.filename:
        return "", 0
    native = array.dtype.isnative and array.flags.c_contiguous and mapped.mode != "c"
    if not native or not hasattr(os, "preadv"):
        return "", 0
    return str(mapped.filename), mapped.offset + array.ctypes.data - mapped.ctypes.data


def _open_direct(path: str) -> int:
    """Open a file for direct reading; return −1 if that fails."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        return -1
