"""A pool's predictions in the kernels' layout, and its exact best candidate at each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from relook.calibration import LOG_FLOOR, FloatArray, Labels, LogProbs
from relook.selection import kernels
from relook.selection.bounds import Values
from relook.selection.needs import ALL_HELD
from relook.selection.rows import readable

_SAMPLED = 48  # candidates whose mean decides the order of the classes
_BLOCKS = 4  # blocks of images summed at once: a sum's order must not depend on the threads
_LEFT_OUT = 0.02  # the share of the mass that the classes of a first look may leave out
_HELD = 1.5  # × the classes of a first look: how many are held of every candidate


_NO_REST = np.zeros((0, kernels.LANES), np.float32)

Indices = NDArray[np.int64]


class FastPool:
    """Probabilities `[candidate, block, class, lane]`, float32, and what belongs to a step.

    Each image's first classes are held of every candidate, all classes of those that were ever
    evaluated in full: memory that is not touched costs nothing. `wrong` names the candidates
    whose rows may not be normalised log-probabilities.
    """

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None,
        tolerance: float,
        threads: Executor,
    ) -> None:
        candidates, images, classes = log_probs.shape
        self._log_probs, self._threads = log_probs, threads
        self._tolerance = np.float32(tolerance)
        self.candidates, self.classes = candidates, classes
        order, left_out, _ = class_order(log_probs, labels)
        self.few = int(np.searchsorted(-left_out, -_LEFT_OUT)) + 1
        self.held = min(classes, max(ALL_HELD, math.ceil(_HELD * self.few)))
        blocks = -(-images // kernels.LANES)
        self._order = places(order, blocks)
        self._first = np.empty((candidates, blocks, self.held, kernels.LANES), np.float32)
        self._whole = self._first
        self._laid_out = np.ones(candidates, dtype=bool)
        self._base = np.zeros((blocks, classes, kernels.LANES), np.float32)
        self._no_tail = np.zeros((1, 3, blocks, kernels.LANES), np.float32)
        self._share = np.float32(1)
        shares = np.zeros(blocks * kernels.LANES)
        shares[:images] = 1 / images if weights is None else weights / weights.sum()
        self._weights = shares.astype(np.float32).reshape(blocks, kernels.LANES)
        self.wrong = self._lay_out(np.arange(candidates), self._first)
        if self.held < classes:
            self._whole = np.empty((candidates, blocks, classes, kernels.LANES), np.float32)
            self._laid_out[:] = False

    def start_step(self, mean: FloatArray, step: int) -> None:
        """Take the policy's average `[n, c]` before entry number `step`."""
        kernels.lay_out_mean(mean, self._order, (step - 1) / step, self._base)
        self._share = np.float32(1 / step)

    def evaluate(self, which: Indices, betas: FloatArray) -> Values:
        """Evaluate candidates, each at its own β."""
        missing = which[~self._laid_out[which]]
        if len(missing):
            self._lay_out(missing, self._whole)
            self._laid_out[missing] = True
        one = np.zeros_like(which)
        return self._evaluate(self._whole, which, betas, self.classes, self._no_tail, one)

    def evaluate_few(self, which: Indices, betas: FloatArray, few: int) -> Values:
        """Evaluate what no candidate's score can exceed, from its first `few` classes.

        The classes left out are counted as if the candidate gave them nothing, which makes
        the sum under the logarithm smaller and the score larger. Equal β cost less.
        """
        different, tail_of = np.unique(betas, return_inverse=True)
        tails = np.empty((len(different), *self._no_tail.shape[1:]), np.float32)

        def work(at: int) -> None:
            kernels.tail_sums(self._base, few, np.float32(different[at]), tails[at])

        self._run(work, len(different))
        return self._evaluate(self._first, which, betas, few, tails, tail_of)

    def _evaluate(
        self,
        pool: NDArray[np.float32],
        which: Indices,
        betas: FloatArray,
        classes: int,
        tails: NDArray[np.float32],
        tail_of: Indices,
    ) -> Values:
        parts = list(_slices(len(self._base), _BLOCKS))
        sums = np.empty((len(parts), len(which), 3))

        def work(at: int) -> None:
            part = parts[at]
            kernels.evaluate(
                pool,
                part.start,
                self._base[part],
                self._share,
                self._weights[part],
                classes,
                tails[:, :, part],
                _NO_REST,
                which,
                betas,
                tail_of,
                sums[at],
            )

        self._run(work, len(parts))
        return Values(*np.add.reduce(sums, axis=0).T)

    def _lay_out(self, which: Indices, pool: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Lay candidates out in their places of a pool; return which have suspect rows."""
        wrong = np.zeros(len(which), dtype=bool)

        def work(at: int) -> None:
            values = readable(np.ascontiguousarray(self._log_probs[which[at]]))
            wrong[at] = kernels.lay_out(values, self._order, self._tolerance, pool[which[at]])

        self._run(work, len(which))
        return wrong

    def _run(self, work: Callable[[int], None], count: int) -> None:
        list(self._threads.map(work, range(count)))


def class_order(
    log_probs: LogProbs, labels: Labels
) -> tuple[NDArray[np.int32], FloatArray, NDArray[np.float32]]:
    """Return the classes of each image `[n, c]`: the label's, then by a sample's mean, falling.

    The second result `[c]` is the mean share of the mass after the first 1, 2, … classes, the
    third the sample's mean `[n, c]`.
    """
    candidates, images, classes = log_probs.shape
    mean = np.zeros((images, classes), np.float32)
    sample = np.unique(np.linspace(0, candidates - 1, min(candidates, _SAMPLED)).astype(int))
    for candidate in sample:
        mean += np.exp(np.maximum(log_probs[candidate], LOG_FLOOR), dtype=np.float32)
    mean /= len(sample)
    keys = -mean
    keys[np.arange(images), labels] = -np.inf
    order = np.argsort(keys, axis=1).astype(np.int32)
    covered = np.take_along_axis(mean, order, axis=1).mean(axis=0, dtype=np.float64).cumsum()
    return order, 1 - covered, mean


def places(order: NDArray[np.int32], blocks: int) -> NDArray[np.int32]:
    """Return where in its block's rows `[lane, class]` each value of `[block, class, lane]` is."""
    images, classes = order.shape
    padded = np.zeros((blocks * kernels.LANES, classes), np.int32)
    padded[:images] = order
    starts = np.arange(kernels.LANES, dtype=np.int32)[:, None] * classes
    rows = padded.reshape(blocks, kernels.LANES, classes) + starts
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


def _slices(count: int, size: int) -> Iterator[slice]:
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))
