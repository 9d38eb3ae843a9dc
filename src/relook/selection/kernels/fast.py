"""The calibrated log-likelihood of a large pool: screened in float32, decided in float64."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.selection.checks import SUSPECT, check_rows, normalised_within
from relook.selection.kernels.exact import ExactScorer
from relook.selection.kernels.fast_pool import FastPool
from relook.selection.kernels.rows import Rows
from relook.selection.kernels.screening import Screen
from relook.selection.scorers import Pick


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
        suspect = SUSPECT * normalised_within(log_probs)
        try:
            pool = FastPool(log_probs, labels, weights, suspect, self._threads)
            check_rows(log_probs, np.flatnonzero(pool.wrong))
        except BaseException:
            self._threads.shutdown()
            raise
        self._screen = Screen(pool)
        self._rows = Rows(log_probs)
        self._exact = ExactScorer(log_probs, labels, weights, self._threads, self._rows)

    def __enter__(self) -> FastScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown()
        self._rows.close()

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""
        which, betas = self._screen.contenders(mean, step, 1 / temperature)
        best = int(which[0]) if len(which) == 1 else self._exact.best(which, betas, mean, step)
        return self.only(best, mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        score, beta = self._exact.fit(candidate, mean, step, 1 / temperature)
        return Pick(candidate, score, 1 / beta)


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
