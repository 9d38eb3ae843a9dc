"""Parts of predictions for the kernels, wherever the predictions are."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import LogProbs
from relook.selection.tempered import TemperedMap, memory_map

_PAGE = 4096  # what direct reading wants places and lengths to be multiples of


class RowReader:
    """Reads `[image, class]` parts of predictions `[candidate, image, class]`.

    A memory map's file is read directly, past the page cache: 45 GB that pass through it once
    cost more processor time than the search, and a map's pages would count as this process's.
    """

    def __init__(self, log_probs: LogProbs | TemperedMap) -> None:
        self._log_probs: LogProbs
        self._form: Callable[[LogProbs], NDArray[Any]]
        if isinstance(log_probs, TemperedMap):
            tempered = log_probs.tempered
            self._log_probs, self._form = log_probs.inner, lambda part: readable(tempered(part))
        else:
            self._log_probs, self._form = log_probs, readable
        self._own = threading.local()
        path, self._offset = _place_in_file(self._log_probs)
        self._file = _open_direct(path) if path else -1

    def part(self, candidate: int, images: slice) -> NDArray[Any]:
        """Return an array that the kernels can read: float16 comes as its bits, uint16.

        It may be overwritten by this thread's next call.
        """
        if self._file < 0:
            return self._form(np.ascontiguousarray(self._log_probs[candidate, images]))
        _, count, classes = self._log_probs.shape
        kind = self._log_probs.dtype
        row = classes * kind.itemsize
        begin = self._offset + (candidate * count + images.start) * row
        length = (images.stop - images.start) * row
        values = np.frombuffer(self._bytes(begin, length), kind, length // kind.itemsize)
        return self._form(values.reshape(-1, classes))

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _bytes(self, begin: int, length: int) -> memoryview:
        """Read bytes of the file into this thread's buffer, whose address is a page's."""
        start = begin - begin % _PAGE
        wanted = -(-(begin + length - start) // _PAGE) * _PAGE
        buffer = getattr(self._own, "buffer", None)
        if buffer is None or len(buffer) < wanted:
            self._own.buffer = buffer = mmap.mmap(-1, wanted)
        done = 0
        while start + done < begin + length:
            got = os.preadv(self._file, [memoryview(buffer)[done:wanted]], start + done)
            if got == 0:
                raise EOFError("the file of the predictions has become shorter")
            done += got
        return memoryview(buffer)[begin - start : begin - start + length]


def readable(values: NDArray[Any]) -> NDArray[Any]:
    """Return float16 as its bits, which the kernels widen; anything else as it is."""
    return values.view(np.uint16) if values.dtype == np.float16 else values


def _place_in_file(array: NDArray[Any]) -> tuple[str, int]:
    """Return the file and the offset of a memory map's values; no name for other arrays."""
    mapped = memory_map(array)
    if mapped is None or not mapped.filename:
        return "", 0
    native = array.dtype.isnative and array.flags.c_contiguous and mapped.mode != "c"
    if not native or not hasattr(os, "preadv"):
        return "", 0
    return str(mapped.filename), mapped.offset + array.ctypes.data - mapped.ctypes.data


def _open_direct(path: str) -> int:
    """Open a file to read it directly; where that cannot be, return −1."""
    try:
        return os.open(path, os.O_RDONLY | getattr(os, "O_DIRECT", 0))
    except OSError:
        return -1
