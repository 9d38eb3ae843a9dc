"""The exact best candidate of a step, with most candidates dropped by proven bounds."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Indices
from relook.numerics.calibration import Bracket
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, upper_bounds
from relook.selection.kernels.pool import PackedPool

_FIRST = 4  # candidates evaluated in full at first, for a lower bound on the best score
_TIMES = {1: 3, 2: 2, 3: 2}  # bounds at a step: the first guesses of β are far off
_MAX_ROUNDS = 60  # a guard only
_FAR = 0.3  # of β: the furthest that one bound may move it
_COARSE_STEPS = 16  # after this many steps candidates differ by less, and the grid is finer
_ABOVE = 0.1  # ÷ step: how much larger than expected the first β is
_ABOVE_FEW = 0.05  # the same, after a bound

GRID = 0.01
"""Of log β: candidates within it are bounded at the same β."""


def slack(score: float, beta: float, classes: int) -> float:
    """Return how far a float32 score may be from the exact one; tests find less.

    Logarithms have relative errors, and the sum over classes has one for each class.
    """
    return 2.5e-7 * (1 + abs(score) + beta + math.log(classes)) + 1.5e-8 * classes


class Screen:
    """Screens a pool, with each candidate's best β from the last step as first guess.

    The guesses change only the time, never the result.
    """

    def __init__(self, pool: PackedPool) -> None:
        self._pool = pool
        self._offsets = np.zeros(pool.candidates)  # of the best β from the policy's, × step

    def contenders(self, mean: FloatArray, step: int, beta: float) -> tuple[Indices, FloatArray]:
        """Return the candidates that float32 cannot separate from the best, ascending, and their β.

        `mean` `[n, c]` is the policy's average before entry number `step`, `beta` its best β.
        """
        self._pool.start_step(mean, step)
        # A little too high on purpose: the bound is tighter downwards.
        betas = (1 + _ABOVE / step) * (beta + self._offsets / step)
        state = _Bounds(self._pool, betas, _spread(mean, step), step)
        for _ in range(_TIMES.get(step, 1)):
            state.bound_all()
        state.evaluate(np.sort(np.argsort(-state.upper, kind="stable")[:_FIRST]))
        state.evaluate(np.array([np.argmax(state.lower)]))
        state.evaluate_best_first()
        state.close_in()
        if step == 1:
            beta = float(state.beta[np.argmax(state.lower)])
        self._offsets = step * np.clip(state.beta - beta, -0.5 * beta, 0.5 * beta)
        which = np.flatnonzero(state.alive())
        return which, state.beta[which]


class _Bounds:
    """Bounds on each candidate's best score at this step."""

    def __init__(self, pool: PackedPool, betas: FloatArray, spread: float, step: int) -> None:
        self.pool, self.spread, self.step = pool, spread, step
        self.beta = np.clip(betas, LOWEST_BETA, HIGHEST_BETA)
        count = pool.candidates
        self.lower, self.upper = np.full(count, -np.inf), np.full(count, np.inf)
        self.bracket = Bracket(count)
        self.found = np.zeros(count, dtype=bool)

    def bound_all(self) -> None:
        """Bound all candidates from above by their likeliest classes."""
        grid = GRID * min(1.0, _COARSE_STEPS / self.step)
        near = np.exp(np.round(np.log(self.beta) / grid) * grid)
        beta = np.clip(near, LOWEST_BETA, min(HIGHEST_BETA, self.pool.steepest))
        values = self.pool.bound(np.arange(len(beta)), beta)
        bounds = upper_bounds(beta, values, self.spread, self.pool.classes)
        self.upper = np.minimum(self.upper, bounds)
        with np.errstate(divide="ignore", invalid="ignore"):
            move = np.nan_to_num(values.slope / values.bend)
        moved = beta + np.clip(move, -_FAR * beta, _FAR * beta)
        moved *= 1 + _ABOVE_FEW / self.step
        self.beta = np.clip(moved, LOWEST_BETA, HIGHEST_BETA)

    def evaluate(self, which: Indices) -> None:
        """Evaluate candidates at their β, and move it towards the maximum."""
        beta = self.beta[which]
        values = self.pool.evaluate(which, beta)
        self.lower[which] = np.maximum(self.lower[which], values.score)
        self.upper[which] = np.minimum(
            self.upper[which], upper_bounds(beta, values, self.spread, self.pool.classes)
        )
        target, found = self.bracket.step(which, beta, values.slope, values.bend)
        self.found[which] = found
        self.beta[which] = np.where(found, beta, target)

    def margin(self) -> float:
        best = int(np.argmax(self.lower))
        return slack(float(self.lower[best]), float(self.beta[best]), self.pool.classes)

    def alive(self) -> NDArray[np.bool_]:
        """Mark the candidates that may still be the best, `[candidate]`."""
        best = self.lower.max()
        return np.asarray((self.upper >= best - self.margin()) | (self.lower == best))

    def unseen(self) -> Indices:
        """Return the candidates that may be the best and have not been evaluated in full."""
        return np.flatnonzero(self.alive() & np.isinf(self.lower))

    def evaluate_best_first(self) -> None:
        """Evaluate candidates that may be the best, most promising first, to skip most others."""
        batch = 2 * _FIRST
        while len(unseen := self.unseen()):
            order = np.argsort(-self.upper[unseen], kind="stable")
            self.evaluate(np.sort(unseen[order[:batch]]))
            batch *= 2

    def close_in(self) -> None:
        """Evaluate until each candidate is out, or as precise as float32 allows."""
        for _ in range(_MAX_ROUNDS):
            vague = self.upper - self.lower > 0.2 * self.margin()
            which = np.flatnonzero(self.alive() & vague & ~self.found)
            if not len(which):
                return
            self.evaluate(which)


def _spread(mean: FloatArray, step: int) -> float:
    """Return the largest difference of two log-probabilities of an image averaged with `mean`."""
    lowest = (step - 1) / step * float(mean.min())
    return 0.01 + (min(80.0, -math.log(lowest)) if lowest > 0 else 80.0)
