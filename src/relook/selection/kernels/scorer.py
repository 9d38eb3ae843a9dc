"""The calibrated log-likelihood of a large pool: screened in float32, decided in float64."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Self

import numpy as np
from numpy.typing import NDArray

from relook.foundation.threads import available_cores
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs, runs
from relook.numerics.calibration import Bracket
from relook.selection.greedy import TIE, Pick, first_best
from relook.selection.kernels import loops
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, Values, upper_bounds
from relook.selection.kernels.pool import PackedPool
from relook.selection.kernels.screening import Screen
from relook.selection.predictions import SUSPECT, RowReader, check_rows, normalised_within

_PART = 1024  # images summed at once: a sum's order must not depend on the threads
_MAX_ROUNDS = 200  # a guard only
_KNOWN = 1e-11  # a score with its upper bound this near is precise enough to compare
_FLAT = 5e-11  # log-probabilities that differ by less: the score does not depend on β
_SPREAD = 80.01  # two log-probabilities of one image differ by at most this


class ExactScorer:
    """Scores candidates in float64, from the predictions `[candidate, image, class]` themselves.

    Subclasses decide which candidates to score; their `_prepare` reads all predictions once. Holds
    threads while it is open.
    """

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None = None,
        threads: int | None = None,
    ) -> None:
        images = log_probs.shape[1]
        self._cores = threads or available_cores()
        self._threads = ThreadPoolExecutor(self._cores)
        self._rows, self._labels = RowReader(log_probs), labels
        self._weights = np.full(images, 1 / images) if weights is None else weights / weights.sum()
        self._parts = runs(images, _PART)
        try:
            self._prepare(log_probs, weights)
        except BaseException:
            self.close()
            raise

    def _prepare(self, log_probs: LogProbs, weights: FloatArray | None) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads, and close the file if one was opened."""
        self._threads.shutdown()
        self._rows.close()

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score, to the last bit for the same first guess."""
        guess = np.array([1 / temperature])
        scores, betas = self._fit(np.array([candidate]), guess, mean, step, 0.0)
        return Pick(candidate, float(scores[0]), 1 / float(betas[0]))

    def _best_of(self, which: Indices, betas: FloatArray, mean: FloatArray, step: int) -> int:
        """Return the best of the ascending candidates `which`; in a tie, the lowest.

        `betas` are first guesses. Candidates that a bound rules out are not scored to the end.
        """
        return int(which[first_best(self._fit(which, betas, mean, step, _KNOWN)[0])])

    def _fit(
        self, which: Indices, betas: FloatArray, mean: FloatArray, step: int, known: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return scores and β; a score is final when its bound is nearer than `known`."""
        count = len(which)
        betas = np.clip(betas, LOWEST_BETA, HIGHEST_BETA)
        scores, upper = np.full(count, -np.inf), np.full(count, np.inf)
        bracket, left = Bracket(count), np.arange(count)
        for _ in range(_MAX_ROUNDS):
            values, flat = self._evaluate(which[left], betas[left], mean, step)
            scores[left] = np.maximum(scores[left], values.score)
            bounds = upper_bounds(betas[left], values, _SPREAD, mean.shape[1])
            upper[left] = np.where(flat, values.score, np.minimum(upper[left], bounds))
            target, found = bracket.step(left, betas[left], values.slope, values.bend)
            found |= flat | (upper[left] - scores[left] < known)
            betas[left] = np.where(flat, 1.0, np.where(found, betas[left], target))
            left = left[~found & (upper[left] >= scores.max() - 2 * TIE)]
            if not len(left):
                break
        return scores, betas

    def _evaluate(
        self, which: Indices, betas: FloatArray, mean: FloatArray, step: int
    ) -> tuple[Values, NDArray[np.bool_]]:
        """Return the candidates' values, and whether their predictions are uniform."""
        sums = np.zeros((len(which), len(self._parts), 4))

        def work(task: tuple[int, int]) -> None:
            row, at = task
            part = self._parts[at]
            loops.exact_values(
                self._rows.part(int(which[row]), part),
                mean[part],
                step,
                self._labels[part],
                self._weights[part],
                betas[row],
                sums[row, at],
            )

        list(self._threads.map(work, np.ndindex(*sums.shape[:2])))
        return Values(*sums[..., :3].sum(axis=1).T), sums[..., 3].min(axis=1) >= -_FLAT


class CompiledScorer(ExactScorer):
    """Finds the same best candidate as scoring all of them."""

    def _prepare(self, log_probs: LogProbs, weights: FloatArray | None) -> None:
        suspect = SUSPECT * normalised_within(log_probs)
        pool = PackedPool(log_probs, self._labels, weights, suspect, self._threads)
        check_rows(log_probs, np.flatnonzero(pool.wrong))
        self._screen = Screen(pool)

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; in a tie, the first."""
        which, betas = self._screen.contenders(mean, step, 1 / temperature)
        best = int(which[0]) if len(which) == 1 else self._best_of(which, betas, mean, step)
        return self.only(best, mean, step, temperature)
