"""Search among many classes: a compact form proposes, the full predictions decide.

Of each image the compact form keeps the label's class and the likeliest ones by the pool's mean,
and a candidate's mass on all others, which is taken to be spread alike by all candidates. The full
predictions stay where they are (a memory map, say) and are read once, and then only for proposals.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

import numpy as np

from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.selection.kernels import float32 as kernels
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, Values, upper_bounds
from relook.selection.kernels.compact_pool import read_predictions
from relook.selection.kernels.exact import ExactScorer
from relook.selection.kernels.fast import available_cores
from relook.selection.kernels.row_kernels import describe_rest
from relook.selection.kernels.rows import Rows
from relook.selection.kernels.screening import GRID
from relook.selection.needs import classes_to_keep
from relook.selection.scorers import Pick

_PROPOSALS = 6  # candidates scored on the full predictions at each step
_LIKELY = 64  # candidates whose β is fitted on the compact form
_FIRST_SLACK = 1e-4  # more than float32 may be off by
_BLOCKS = 4


class CompactScorer:
    """Finds a candidate whose score is the best, or falls short of it by very little.

    The first step is exact, and so is every score that is returned. Holds threads while open.
    """

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None = None,
        threads: int | None = None,
        memory: int = 16 << 30,
    ) -> None:
        kept = classes_to_keep(log_probs.shape, memory)
        count = threads or available_cores()
        self._threads = ThreadPoolExecutor(count)
        self._rows = Rows(log_probs)
        self._exact = ExactScorer(log_probs, labels, weights, self._threads, self._rows)
        try:
            self._compact = read_predictions(log_probs, self._rows, labels, weights, kept, count)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> CompactScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._threads.shutdown()
        self._rows.close()

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best of the candidates proposed; of equals, the first."""
        which, betas = (
            self._possible_first(mean)
            if step == 1
            else self._proposals(mean, step, 1 / temperature)
        )
        return self.only(self._exact.best(which, betas, mean, step), mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        score, beta = self._exact.fit(candidate, mean, step, 1 / temperature)
        return Pick(candidate, score, 1 / beta)

    def _possible_first(self, mean: FloatArray) -> tuple[Indices, FloatArray]:
        """Return all candidates that may be the best alone, rising, and their β."""
        guesses, values = self._compact.betas, self._compact.alone
        betas, estimates = newton(guesses, values)
        likely = int(np.argmax(estimates))
        reached, _ = self._exact.fit(likely, mean, 1, betas[likely])
        upper = upper_bounds(guesses, values, 80.01, mean.shape[1])
        which = np.flatnonzero(upper >= reached - _FIRST_SLACK)
        return which, betas[which]

    def _proposals(self, mean: FloatArray, step: int, beta: float) -> tuple[Indices, FloatArray]:
        """Return the candidates that the compact form likes best, rising, and their β.

        What earlier steps found is not used: a resumed search must propose the same.
        """
        every = np.arange(len(self._compact.pool))
        guess = np.full(len(every), np.clip(beta, LOWEST_BETA, HIGHEST_BETA))
        betas, estimates = newton(guess, self._estimate(every, guess, mean, step))
        likely = np.sort(np.argsort(-estimates, kind="stable")[:_LIKELY])
        near = np.exp(np.round(np.log(betas[likely]) / GRID) * GRID)
        betas, estimates = newton(near, self._estimate(likely, near, mean, step))
        first = np.sort(np.argsort(-estimates, kind="stable")[:_PROPOSALS])
        return likely[first], betas[first]

    def _estimate(self, which: Indices, betas: FloatArray, mean: FloatArray, step: int) -> Values:
        """Evaluate candidates on the compact form, each at its own β; equal β cost less."""
        compact, kept = self._compact, self._compact.order.shape[1]
        blocks = len(compact.weights)
        parts = [slice(at, min(at + _BLOCKS, blocks)) for at in range(0, blocks, _BLOCKS)]
        different, tail_of = np.unique(betas, return_inverse=True)
        sums = np.empty((len(parts), len(which), 3))
        share = np.float32(1 / step)

        def work(at: int) -> None:
            part = parts[at]
            count = part.stop - part.start
            base = np.zeros((count, kept, kernels.LANES), np.float32)
            rest = np.zeros((count, kernels.LANES), np.float32)
            tails = np.zeros((len(different), 3, count, kernels.LANES), np.float32)
            for block in range(count):
                images = compact.images(part.start + block)
                describe_rest(
                    mean[images],
                    compact.pool_mean[images],
                    compact.order[images],
                    (step - 1) / step,
                    share,
                    different,
                    base[block],
                    rest[block],
                    tails[:, :, block],
                )
            kernels.evaluate(
                compact.pool,
                part.start,
                base,
                share,
                compact.weights[part],
                kept,
                tails,
                rest,
                which,
                betas,
                tail_of,
                sums[at],
            )

        list(self._threads.map(work, range(len(parts))))
        return Values(*sums.sum(axis=0).T)


def newton(betas: FloatArray, values: Values) -> tuple[FloatArray, FloatArray]:
    """Return the β that one step of Newton leads to, and the score to expect there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.nan_to_num(values.slope / values.bend)
    move = np.clip(move, -0.2 * betas, 0.2 * betas)
    moved = np.clip(betas + move, LOWEST_BETA, HIGHEST_BETA)
    return moved, values.score + 0.5 * (moved - betas) * values.slope
