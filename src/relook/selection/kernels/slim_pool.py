"""Upper bounds on candidates' scores from the likeliest classes of each image."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, LogProbs
from relook.selection.kernels import slim_kernels
from relook.selection.kernels.bounds import Values
from relook.selection.kernels.float32 import LANES
from relook.selection.kernels.layout import Layout
from relook.selection.kernels.rows import readable

_EXACT = 2  # classes whose q is computed where tangents stand for the others
_BLOCKS = 4  # blocks of images summed at once: a sum's order must not depend on the threads
_STEEPEST = 30.0  # ÷ log₂(classes): at a larger β float32 is not precise enough


@dataclass(frozen=True)
class Window:
    """A range of β around each candidate's, `[k]`; it lies above 1."""

    low: FloatArray
    high: FloatArray


class SlimPool:
    """The likeliest classes of all candidates; `wrong` names those that have suspect rows."""

    def __init__(
        self, log_probs: LogProbs, layout: Layout, tolerance: float, threads: Executor
    ) -> None:
        candidates, _, self._classes = log_probs.shape
        self._layout, self._threads = layout, threads
        sizes = (layout.held + 1) * candidates * LANES
        self._starts = np.concatenate([[0], sizes.cumsum()])
        self._others = np.empty(self._starts[-1], np.uint16)
        self._own = np.empty((len(layout.held), candidates, LANES), np.float32)
        self.wrong = np.zeros(candidates, dtype=bool)

        def work(at: int) -> None:
            self.wrong[at] = slim_kernels.keep_likeliest(
                readable(np.ascontiguousarray(log_probs[at])),
                layout.images,
                layout.places,
                self._starts,
                at,
                np.float32(tolerance),
                self._own,
                self._others,
            )

        list(threads.map(work, range(candidates)))

    @property
    def steepest(self) -> float:
        """The largest β that a look may be taken at."""
        return _STEEPEST / float(np.log2(self._classes))

    def look(
        self,
        base: NDArray[np.float32],
        share: float,
        which: NDArray[np.int64],
        betas: FloatArray,
        window: Window | None = None,
    ) -> tuple[Values, Values]:
        """Evaluate two functions of β that no score exceeds: anywhere, and within the window.

        The first takes classes that are not looked at for what `base` has of them. Within a
        window tangents count them too: as q^β is convex for β ≥ 1, (b + s·p)^β is at least
        b^β + s·p·β·b^(β−1), and β at least low·e^(μ·(β − low)), by the chord of log β over the
        window, so that both functions are sums over images of −log Σ a·e^(β·x) with a ≥ 0.
        """
        different, at, beta_of = np.unique(betas, return_index=True, return_inverse=True)
        shifts, factors = np.zeros(len(different)), np.zeros(len(different))
        if window is not None:
            low, high = window.low[at], window.high[at]
            shifts = np.log(high / low) / (high - low)
            factors = share * low * np.exp(shifts * (different - low))
        arguments = (
            np.float32(share),
            self._classes if window is None else _EXACT,
            np.float32(np.log2(self._classes)),
            *(each.astype(np.float32) for each in (different, shifts / np.log(2), factors)),
            which,
            beta_of,
        )
        sums = self._sums(base, arguments, len(which))
        sums *= np.log(2) ** np.array([1, 1, 2, 1, 1, 2])
        return Values(*sums[:, :3].T), Values(*sums[:, 3:].T)

    def _sums(
        self, base: NDArray[np.float32], arguments: tuple[Any, ...], count: int
    ) -> FloatArray:
        parts = [
            slice(begin, min(begin + _BLOCKS, self._layout.used))
            for begin in range(0, self._layout.used, _BLOCKS)
        ]
        sums = np.empty((len(parts), count, 6))
        share, *others = arguments

        def work(at: int) -> None:
            part = parts[at]
            slim_kernels.look(
                self._own,
                self._others,
                self._starts,
                part.start,
                base[part],
                share,
                self._layout.weights[part],
                *others,
                sums[at],
            )

        list(self._threads.map(work, range(len(parts))))
        return np.asarray(np.add.reduce(sums, axis=0))
