"""The exact best candidate of a step, with most candidates dropped by proven bounds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relook.calibration import FloatArray, newton_step
from relook.selection.bounds import HIGHEST_BETA, LOWEST_BETA, upper_bounds
from relook.selection.fast_pool import FastPool, Indices

_FIRST = 16  # candidates evaluated in full before the line is drawn
_ROUNDS = 60  # a guard only
_ABOVE = 0.1  # ÷ step: how much larger than expected the first β is

GRID = 0.01
"""Of log β: candidates within it are looked at with the same β."""


def slack(score: float, beta: float, classes: int) -> float:
    """Return how far a float32 score may be from the true one; tested to be less.

    The logarithms are off by parts of themselves, the sum over classes by a part for each class.
    """
    return 2.5e-7 * (1 + abs(score) + beta + math.log(classes)) + 1.5e-8 * classes


class Screen:
    """A pool and what the last step taught about it: where each candidate's best β lies.

    None of that changes what is found, only how soon.
    """

    def __init__(self, pool: FastPool) -> None:
        self._pool = pool
        self._few = pool.few
        self._offsets = np.zeros(pool.candidates)  # of the best β from the policy's, × step
        self._promise = np.zeros(pool.candidates)

    def contenders(self, mean: FloatArray, step: int, beta: float) -> tuple[Indices, FloatArray]:
        """Return the candidates that float32 cannot tell from the best one, rising, and their β.

        `mean` `[n, c]` is the policy's average before entry number `step`, `beta` its best β.
        """
        self._pool.start_step(mean, step)
        # A little too high: the bound is tighter downwards.
        betas = (1 + _ABOVE / step) * (beta + self._offsets / step)
        state = _Bounds(self._pool, betas, _spread(mean, step))
        state.look(np.argsort(-self._promise, kind="stable")[:_FIRST])
        if step > 1 and self._few < 0.8 * self._pool.classes:
            self._look_at_few(state, adapt=step > 2)
        state.look(state.unseen())
        state.close_in()
        if step == 1:
            beta = float(state.beta[np.argmax(state.lower)])
        self._offsets = step * np.clip(state.beta - beta, -0.5 * beta, 0.5 * beta)
        self._promise = state.upper
        which = np.flatnonzero(state.alive())
        return which, state.beta[which]

    def best_betas(self) -> FloatArray:
        """Return each candidate's best β, alone."""
        state = _Bounds(self._pool, np.ones(self._pool.candidates), 80.01)
        for _ in range(4):
            state.look(np.arange(self._pool.candidates))
        return state.beta

    def _look_at_few(self, state: _Bounds, adapt: bool) -> None:
        """Drop candidates by their first classes; adapt how many, to what they let through."""
        which = state.unseen()
        state.look_at_few(which, self._few)
        ratio = len(state.unseen()) * self._pool.classes / (max(1, len(which)) * self._few)
        if adapt and ratio > 0.5:
            self._few = min(self._pool.classes, math.ceil(1.25 * self._few))
        elif adapt and ratio < 0.1:
            self._few = max(2, math.floor(0.9 * self._few))


class _Bounds:
    """What is known of each candidate's best score at this step: not below, not above."""

    def __init__(self, pool: FastPool, betas: FloatArray, spread: float) -> None:
        self.pool, self.spread = pool, spread
        self.beta = np.clip(betas, LOWEST_BETA, HIGHEST_BETA)
        count = pool.candidates
        self.lower, self.upper = np.full(count, -np.inf), np.full(count, np.inf)
        self.low, self.high = np.zeros(count), np.full(count, np.inf)
        self.last_move = np.full(count, np.inf)
        self.found = np.zeros(count, dtype=bool)

    def look_at_few(self, which: Indices, few: int) -> None:
        """Bound candidates from above by their first classes alone."""
        grid = np.exp(np.round(np.log(self.beta[which]) / GRID) * GRID)
        beta = np.clip(grid, LOWEST_BETA, HIGHEST_BETA)
        values = self.pool.evaluate_few(which, beta, few)
        self.upper[which] = upper_bounds(beta, values, self.spread, self.pool.classes)
        with np.errstate(divide="ignore", invalid="ignore"):
            move = values.slope / values.bend
        moved = np.where(np.abs(move) < 0.1 * beta, beta + move, beta)
        self.beta[which] = np.clip(moved, LOWEST_BETA, HIGHEST_BETA)

    def look(self, which: Indices) -> None:
        """Evaluate candidates at their β, and move it towards the maximum."""
        beta = self.beta[which]
        values = self.pool.evaluate(which, beta)
        self.lower[which] = np.maximum(self.lower[which], values.score)
        self.upper[which] = np.minimum(
            self.upper[which], upper_bounds(beta, values, self.spread, self.pool.classes)
        )
        target, self.low[which], self.high[which], self.last_move[which], found = newton_step(
            beta,
            self.low[which],
            self.high[which],
            self.last_move[which],
            values.slope,
            values.bend,
        )
        self.found[which] = found
        self.beta[which] = np.where(found, beta, target)

    def margin(self) -> float:
        best = int(np.argmax(self.lower))
        return slack(float(self.lower[best]), float(self.beta[best]), self.pool.classes)

    def alive(self) -> NDArray[np.bool_]:
        """Which candidates may still be the best."""
        best = self.lower.max()
        return np.asarray((self.upper >= best - self.margin()) | (self.lower == best))

    def unseen(self) -> Indices:
        """Return the candidates that may be the best and have not been evaluated in full."""
        return np.flatnonzero(self.alive() & np.isinf(self.lower))

    def close_in(self) -> None:
        """Evaluate until each candidate is out, or known as well as float32 can know it."""
        for _ in range(_ROUNDS):
            vague = self.upper - self.lower > 0.2 * self.margin()
            which = np.flatnonzero(self.alive() & vague & ~self.found)
            if not len(which):
                return
            self.look(which)


def _spread(mean: FloatArray, step: int) -> float:
    """Return what two log-probabilities of one image, averaged with `mean`, differ by at most."""
    lowest = (step - 1) / step * float(mean.min())
    return 0.01 + (min(80.0, -math.log(lowest)) if lowest > 0 else 80.0)
