"""Search among many classes: a compact form proposes, the full predictions decide.

Of each image the compact form keeps the label's class and the likeliest ones by the pool's mean,
and a candidate's mass on all others, which is taken to be spread alike by all candidates. The full
predictions stay where they are (a memory map, say) and are read once, and then only for proposals.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.calibration import FloatArray, Labels, LogProbs
from relook.selection import kernels
from relook.selection.bounds import HIGHEST_BETA, LOWEST_BETA, Values, upper_bounds
from relook.selection.checks import check_rows, normalised_within
from relook.selection.exact import ExactScorer
from relook.selection.fast import SUSPECT, available_cores
from relook.selection.fast_pool import FastPool, class_order, places
from relook.selection.greedy import Pick
from relook.selection.needs import FIRST_IMAGES, classes_to_keep
from relook.selection.screening import GRID, Screen

_PROPOSALS = 6  # candidates scored on the full predictions at each step
_FIRST_SLACK = 1e-4  # more than float32 may be off by
_ABOVE = 1.05  # times the guess: the bound is tighter downwards
_BLOCKS = 4

Indices = NDArray[np.int64]


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
        count = threads or available_cores()
        self._kept = classes_to_keep(log_probs.shape, memory)
        self._threads = ThreadPoolExecutor(count)
        self._exact = ExactScorer(log_probs, labels, weights, self._threads)
        images = len(labels)
        blocks = -(-images // kernels.LANES)
        self._weights = np.zeros((blocks, kernels.LANES), np.float32)
        shares = np.full(images, 1 / images) if weights is None else weights / weights.sum()
        self._weights.reshape(-1)[:images] = shares
        shape = (blocks, log_probs.shape[2], kernels.LANES)
        self._order = np.zeros(shape, np.int32)
        self._pool_mean, self._base = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self._share = np.float32(1)
        compact = (blocks, len(log_probs), self._kept + 1, kernels.LANES)
        self._pool = np.empty(compact, np.float32)
        try:
            self._betas = self._first_guess(log_probs, labels)
            self._first, wrong = self._read(log_probs, labels)
            check_rows(log_probs, np.flatnonzero(wrong))
        except BaseException:
            self._threads.shutdown()
            raise

    def __enter__(self) -> CompactScorer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._threads.shutdown()

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

    def _first_guess(self, log_probs: LogProbs, labels: Labels) -> FloatArray:
        """Return each candidate's best β on the first images."""
        part = slice(0, min(len(labels), FIRST_IMAGES))
        tolerance = normalised_within(log_probs)
        pool = FastPool(log_probs[:, part], labels[part], None, tolerance, self._threads)
        return np.clip(_ABOVE * Screen(pool).best_betas(), LOWEST_BETA, HIGHEST_BETA)

    def _read(self, log_probs: LogProbs, labels: Labels) -> tuple[Values, NDArray[np.bool_]]:
        """Go over all predictions once: fill the compact form, evaluate the first step."""
        candidates, images, classes = log_probs.shape
        blocks = len(self._pool)
        sums = np.empty((blocks, candidates, 3))
        wrong = np.zeros((blocks, candidates), dtype=bool)
        no_tail = np.zeros((1, 3, 1, kernels.LANES), np.float32)
        every, tolerance = np.arange(candidates), SUSPECT * normalised_within(log_probs)

        def work(at: int) -> None:
            part = slice(at * kernels.LANES, min((at + 1) * kernels.LANES, images))
            rows = np.ascontiguousarray(log_probs[:, part], dtype=np.float32)
            order, _, mean = class_order(rows, labels[part])
            self._order[at] = places(order, 1)[0]
            whole = np.empty((1, candidates, classes, kernels.LANES), np.float32)
            kernels.lay_out(rows, self._order[at : at + 1], tolerance, 0, whole, wrong[at])
            kernels.lay_out_mean(
                mean.astype(np.float64), self._order[at : at + 1], 1.0, self._pool_mean[at : at + 1]
            )
            kernels.evaluate(
                whole,
                np.zeros((1, classes, kernels.LANES), np.float32),
                np.float32(1),
                self._weights[at : at + 1],
                classes,
                no_tail,
                no_tail[0, 0, :0],
                every,
                self._betas,
                np.zeros_like(every),
                sums[at],
            )
            kernels.keep_first(whole, self._kept, at, self._pool)

        list(self._threads.map(work, range(blocks)))
        return Values(*sums.sum(axis=0).T), np.asarray(wrong.any(axis=0))

    def _possible_first(self, mean: FloatArray) -> tuple[Indices, FloatArray]:
        """Return all candidates that may be the best alone, rising, and their β."""
        betas, estimates = _newton(self._betas, self._first)
        likely = int(np.argmax(estimates))
        reached, _ = self._exact.fit(likely, mean, 1, betas[likely])
        upper = upper_bounds(self._betas, self._first, 80.01, self._order.shape[1])
        which = np.flatnonzero(upper >= reached - _FIRST_SLACK)
        return which, betas[which]

    def _proposals(self, mean: FloatArray, step: int, beta: float) -> tuple[Indices, FloatArray]:
        """Return the candidates that the compact form likes best, rising, and their β."""
        kernels.lay_out_mean(mean, self._order, (step - 1) / step, self._base)
        self._share = np.float32(1 / step)
        # What earlier steps found is not used: a resumed search must propose the same.
        betas = np.full(self._pool.shape[1], np.clip(beta, LOWEST_BETA, HIGHEST_BETA))
        for _ in range(2):
            betas = np.exp(np.round(np.log(betas) / GRID) * GRID)
            betas, estimates = _newton(betas, self._estimate(betas))
        which = np.sort(np.argsort(-estimates, kind="stable")[:_PROPOSALS])
        return which, betas[which]

    def _estimate(self, betas: FloatArray) -> Values:
        """Evaluate all candidates on the compact form, each at its own β."""
        different, tail_of = np.unique(betas, return_inverse=True)
        expected = self._base + self._share * self._pool_mean
        rest = expected[:, self._kept :].sum(axis=1) - self._share * self._pool_mean[
            :, self._kept :
        ].sum(axis=1)
        rest = np.maximum(rest, np.float32(0))
        blocks = len(self._pool)
        tails = np.empty((len(different), 3, blocks, kernels.LANES), np.float32)

        def describe(at: int) -> None:
            kernels.rest_sums(expected, self._kept, np.float32(different[at]), tails[at])

        list(self._threads.map(describe, range(len(different))))
        parts = [slice(at, min(at + _BLOCKS, blocks)) for at in range(0, blocks, _BLOCKS)]
        sums = np.empty((len(parts), len(betas), 3))
        every = np.arange(len(betas))

        def work(at: int) -> Any:
            part = parts[at]
            return kernels.evaluate(
                self._pool[part],
                self._base[part],
                self._share,
                self._weights[part],
                self._kept,
                tails[:, :, part],
                rest[part],
                every,
                betas,
                tail_of,
                sums[at],
            )

        list(self._threads.map(work, range(len(parts))))
        return Values(*sums.sum(axis=0).T)


def _newton(betas: FloatArray, values: Values) -> tuple[FloatArray, FloatArray]:
    """Return the β that one step of Newton leads to, and the score to expect there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.nan_to_num(values.slope / values.bend)
    move = np.clip(move, -0.2 * betas, 0.2 * betas)
    moved = np.clip(betas + move, LOWEST_BETA, HIGHEST_BETA)
    return moved, values.score + 0.5 * (moved - betas) * values.slope
