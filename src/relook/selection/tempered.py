"""A pool's predictions as they are averaged: log softmax(log p / κ) at the view temperature κ.

Everything else in the selection takes them as it takes any predictions.
"""

from __future__ import annotations

import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from relook.foundation.threads import available_cores
from relook.numerics.arrays import LogProbs
from relook.numerics.calibration import temper
from relook.selection.checks import check_rows


class TemperedMap:
    """Predictions that are mapped from disk, tempered where they are read."""

    def __init__(self, inner: LogProbs, view_temperature: float) -> None:
        self.inner, self._kappa = inner, view_temperature
        self.shape, self.size, self.ndim = inner.shape, inner.size, inner.ndim
        self.dtype = inner.dtype

    def __len__(self) -> int:
        return len(self.inner)

    def __getitem__(self, key: Any) -> LogProbs:
        return self.tempered(self.inner[key])

    def tempered(self, log_probs: LogProbs) -> LogProbs:
        """Return a part of the predictions, whole rows `[..., class]`, as it is averaged."""
        return temper(log_probs, self._kappa).astype(self.dtype)


def tempered_pool(log_probs: LogProbs, view_temperature: float, threads: int | None) -> LogProbs:
    """Return predictions `[candidate, image, class]` at this κ; at 1 they are what they were.

    What is in memory is copied, with its type; what is on disk stays there.
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
