"""The calibrated log-likelihood of a large pool: screened in float32, decided in float64."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from relook.calibration import FloatArray, Labels, LogProbs
from relook.selection.checks import NORMALISED_WITHIN, check_rows
from relook.selection.exact import ExactScorer
from relook.selection.fast_pool import FastPool
from relook.selection.greedy import Pick
from relook.selection.screening import Screen

_SUSPECT = 0.98 * NORMALISED_WITHIN  # a row that float32 finds this far off is checked again


class FastScorer:
    """Finds the same best candidate as scoring them all would; holds threads while it is open."""

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None = None,
        threads: int | None = None,
    ) -> None:
        self._threads = ThreadPoolExecutor(threads or available_cores())
        try:
            pool = FastPool(log_probs, labels, weights, _SUSPECT, self._threads)
            check_rows(log_probs, np.flatnonzero(pool.wrong))
        except BaseException:
            self._threads.shutdown()
            raise
        self._screen = Screen(pool)
        self._exact = ExactScorer(log_probs, labels, weights, self._threads)

    def __enter__(self) -> FastScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown()

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""
        return self._decide(
            self._screen.contenders(mean, step, 1 / temperature), mean, step, temperature
        )

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        return self._decide(np.array([candidate]), mean, step, temperature)

    def _decide(
        self, which: NDArray[np.int64], mean: FloatArray, step: int, temperature: float
    ) -> Pick:
        candidate, score, beta = self._exact.best(which, mean, step, 1 / temperature)
        return Pick(candidate, score, 1 / beta)


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
