"""A pool's predictions in the kernels' layout, and what belongs to a step of the search."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np

from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.selection.kernels import float32 as kernels
from relook.selection.kernels.bounds import Values
from relook.selection.kernels.layout import make_layout
from relook.selection.kernels.rows import readable
from relook.selection.kernels.slim_pool import SlimPool, Window
from relook.selection.needs import slots

_BLOCKS = 4  # blocks of images summed at once: a sum's order must not depend on the threads
_NO_REST = np.zeros((0, kernels.LANES), np.float32)


class FastPool:
    """Probabilities `[slot, block, class, lane]`, float32, and the policy's average.

    The candidates evaluated last have slots; all have their likeliest classes held beside. `wrong`
    names those whose rows may not be normalised log-probabilities.
    """

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None,
        tolerance: float,
        threads: Executor,
    ) -> None:
        self.candidates, _, self.classes = log_probs.shape
        self._log_probs, self._threads = log_probs, threads
        self._layout = make_layout(log_probs, labels, weights)
        self._slim = SlimPool(log_probs, self._layout, tolerance, threads)
        self.wrong = self._slim.wrong
        places = self._layout.places
        count = slots(log_probs.shape)
        self._whole = np.empty((count, *places.shape), np.float32)
        self._slot = np.full(self.candidates, -1)
        self._holder = np.full(count, -1)
        self._used = np.zeros(count, np.int64)  # when, counted in evaluations
        self._base = np.zeros(places.shape, np.float32)
        self._no_tail = np.zeros((1, 3, len(places), kernels.LANES), np.float32)
        self._share = 1.0

    def start_step(self, mean: FloatArray, step: int) -> None:
        """Take the policy's average `[n, c]` before entry number `step`."""
        layout = self._layout
        kernels.lay_out_mean(mean, layout.images, layout.places, (step - 1) / step, self._base)
        self._share = 1 / step

    def evaluate(self, which: Indices, betas: FloatArray) -> Values:
        """Evaluate candidates, each at its own β."""
        together = len(self._holder)
        sums = [
            self._sums(which[at : at + together], betas[at : at + together])
            for at in range(0, len(which), together)
        ]
        return Values(*np.concatenate([np.empty((0, 3)), *sums]).T)

    def _sums(self, which: Indices, betas: FloatArray) -> FloatArray:
        places = self._slots(which)
        used = self._layout.used
        parts = [slice(at, min(at + _BLOCKS, used)) for at in range(0, used, _BLOCKS)]
        sums = np.empty((len(parts), len(which), 3))

        def work(at: int) -> None:
            part = parts[at]
            kernels.evaluate(
                self._whole,
                part.start,
                self._base[part],
                np.float32(self._share),
                self._layout.weights[part],
                self.classes,
                self._no_tail[:, :, part],
                _NO_REST,
                places,
                betas,
                np.zeros_like(places),
                sums[at],
            )

        self._run(work, len(parts))
        return np.asarray(np.add.reduce(sums, axis=0))

    def _slots(self, which: Indices) -> Indices:
        """Return the candidates' slots; who has none gets that of another not used for long."""
        now = self._used.max() + 1
        found = self._slot[which]
        self._used[found[found >= 0]] = now
        missing = which[found < 0]
        oldest = np.argsort(self._used, kind="stable")[: len(missing)]
        gone = self._holder[oldest]
        self._slot[gone[gone >= 0]] = -1
        self._slot[missing], self._holder[oldest], self._used[oldest] = oldest, missing, now

        def work(at: int) -> None:
            values = readable(np.ascontiguousarray(self._log_probs[missing[at]]))
            layout = self._layout
            kernels.lay_out(values, layout.images, layout.places, self._whole[oldest[at]])

        self._run(work, len(missing))
        return self._slot[which]

    def look(
        self, which: Indices, betas: FloatArray, window: Window | None = None
    ) -> tuple[Values, Values]:
        """Evaluate what no score exceeds, anywhere and within the window; see `SlimPool.look`.

        Equal β cost less, and none may be larger than `steepest`.
        """
        return self._slim.look(self._base, self._share, which, betas, window)

    @property
    def steepest(self) -> float:
        """The largest β that a look may be taken at."""
        return self._slim.steepest

    def _run(self, work: Callable[[int], None], count: int) -> None:
        list(self._threads.map(work, range(count)))
