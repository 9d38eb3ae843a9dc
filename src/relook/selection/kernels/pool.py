"""A pool's predictions in the order and form that the kernels take.

`Layout` is the order of images and classes, `LikelyClasses` holds the likeliest classes of all
candidates for bounds, and `PackedPool` adds whole candidates and the policy's average.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs, runs
from relook.numerics.calibration import LOG_FLOOR
from relook.selection.kernels import loops
from relook.selection.kernels.arithmetic import LANES
from relook.selection.kernels.bounds import Values
from relook.selection.plan import slots
from relook.selection.predictions import readable

_SAMPLED = 48  # candidates whose mean decides the order
_LEFT_OUT = 0.012  # the share of the mass on classes that are not held individually
_BLOCKS = 4  # blocks of images summed at once: a sum's order must not depend on the threads
_STEEPEST = 30.0  # ÷ log₂(classes): at a larger β float32 is not precise enough for bounds
_NO_REST = np.zeros((0, LANES), np.float32)


@dataclass(frozen=True)
class Layout:
    """The order of images, in blocks of similar ones, and of classes, the likeliest first.

    `images` `[n]` is the order of the images: those with weight first, the least certain first.
    `places` `[block, class, lane]` is a value's place in its block's rows `[lane, class]`: the
    label's class, then the others, descending by a sample's mean. `held` `[block]` is the number
    of these others that are held for bounds; `used` the number of blocks with any weight.
    """

    images: NDArray[np.int64]
    places: NDArray[np.int32]
    weights: NDArray[np.float32]  # [block, lane]
    held: NDArray[np.int64]
    used: int

    def summed(
        self, sums_of: Callable[[slice, FloatArray], None], count: int, threads: Executor
    ) -> FloatArray:
        """Sum what `sums_of` writes for each part of the blocks: `[count, 3]`."""
        parts = runs(self.used, _BLOCKS)
        sums = np.empty((len(parts), count, 3))
        list(threads.map(sums_of, parts, sums))
        return np.asarray(np.add.reduce(sums, axis=0))


def make_layout(log_probs: LogProbs, labels: Labels, weights: FloatArray | None) -> Layout:
    """Decide the order of images and classes from a sample of the candidates."""
    count = log_probs.shape[1]
    blocks = -(-count // LANES)
    order, shares = _class_order(log_probs, labels)
    parts = np.full(count, 1 / count) if weights is None else weights / weights.sum()
    needed = (shares.cumsum(axis=1) < 1 - _LEFT_OUT).sum(axis=1)
    images = np.lexsort((-needed, parts == 0))
    lanes = np.zeros(blocks * LANES)
    lanes[:count] = parts[images]
    lanes = lanes.reshape(blocks, LANES)
    return Layout(
        images,
        _places(order[images], blocks),
        lanes.astype(np.float32),
        _held(shares[images], blocks),
        int(lanes.any(axis=1).sum()),
    )


def _class_order(
    log_probs: LogProbs, labels: Labels
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the classes of each image `[n, c]`, the label's first, and their mean shares."""
    candidates, images, classes = log_probs.shape
    mean = np.zeros((images, classes), np.float32)
    sample = np.unique(np.linspace(0, candidates - 1, min(candidates, _SAMPLED)).astype(int))
    for candidate in sample:
        mean += np.exp(np.maximum(log_probs[candidate], LOG_FLOOR), dtype=np.float32)
    mean /= len(sample)
    keys = -mean
    keys[np.arange(images), labels] = -np.inf
    order = np.argsort(keys, axis=1).astype(np.int32)
    return order, np.take_along_axis(mean, order, axis=1)


def _held(shares: NDArray[np.float32], blocks: int) -> NDArray[np.int64]:
    """Return the number of classes besides the label's that each block holds: the likeliest."""
    starts = np.arange(blocks) * LANES
    sums = np.add.reduceat(shares[:, 1:], starts, axis=0, dtype=np.float64)
    rising = np.sort(sums, axis=None)
    left_out = int((rising.cumsum() < _LEFT_OUT * len(shares)).sum())
    least = rising[min(left_out, rising.size - 1)]
    return np.asarray(np.maximum((sums >= least).sum(axis=1), 1), dtype=np.int64)


def _places(order: NDArray[np.int32], blocks: int) -> NDArray[np.int32]:
    images, classes = order.shape
    padded = np.zeros((blocks * LANES, classes), np.int32)
    padded[:images] = order
    starts = np.arange(LANES, dtype=np.int32)[:, None] * classes
    rows = padded.reshape(blocks, LANES, classes) + starts
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


class LikelyClasses:
    """The likeliest classes of all candidates; `wrong` marks candidates with suspect rows."""

    def __init__(
        self, log_probs: LogProbs, layout: Layout, tolerance: float, threads: Executor
    ) -> None:
        candidates, _, self._classes = log_probs.shape
        self._layout, self._threads = layout, threads
        self._starts = np.concatenate([[0], (layout.held * candidates * LANES).cumsum()])
        self._others = np.empty(self._starts[-1], np.uint16)
        self._own = np.empty((len(layout.held), candidates, LANES), np.float32)
        self.wrong = np.zeros(candidates, dtype=bool)

        def work(at: int) -> None:
            self.wrong[at] = loops.keep_likeliest(
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
        """The largest β at which bounds are valid."""
        return _STEEPEST / float(np.log2(self._classes))

    def bound(
        self, base: NDArray[np.float32], share: float, which: Indices, betas: FloatArray
    ) -> Values:
        """Evaluate a function of β that no score exceeds; equal β save time."""
        different, beta_of = np.unique(betas, return_inverse=True)

        def sums_of(part: slice, sums: FloatArray) -> None:
            loops.bound(
                self._own,
                self._others,
                self._starts,
                part.start,
                base[part],
                np.float32(share),
                self._layout.weights[part],
                np.float32(np.log2(self._classes)),
                different.astype(np.float32),
                which,
                beta_of,
                sums,
            )

        sums = self._layout.summed(sums_of, len(which), self._threads)
        return Values(*(sums * np.log(2) ** np.array([1, 1, 2])).T)


class PackedPool:
    """Probabilities `[slot, block, class, lane]`, float32, and the policy's average.

    The candidates evaluated last have slots; of all candidates the likeliest classes are held.
    `wrong` marks those whose rows may not be normalised log-probabilities.
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
        self._likely = LikelyClasses(log_probs, self._layout, tolerance, threads)
        self.wrong = self._likely.wrong
        places = self._layout.places
        count = slots(log_probs.shape)
        self._whole = np.empty((count, *places.shape), np.float32)
        self._slot = np.full(self.candidates, -1)
        self._holder = np.full(count, -1)
        self._used = np.zeros(count, np.int64)  # the time of last use, counted in evaluations
        self._base = np.zeros(places.shape, np.float32)
        self._no_tail = np.zeros((1, 3, len(places), LANES), np.float32)
        self._share = 1.0

    def start_step(self, mean: FloatArray, step: int) -> None:
        """Set the policy's average `[n, c]` before entry number `step`."""
        layout = self._layout
        loops.lay_out_mean(mean, layout.images, layout.places, (step - 1) / step, self._base)
        self._share = 1 / step

    def evaluate(self, which: Indices, betas: FloatArray) -> Values:
        """Evaluate candidates, each at its own β."""
        parts = runs(len(which), len(self._holder))
        sums = [self._sums(which[part], betas[part]) for part in parts]
        return Values(*np.concatenate([np.empty((0, 3)), *sums]).T)

    def _sums(self, which: Indices, betas: FloatArray) -> FloatArray:
        places = self._slots(which)

        def sums_of(part: slice, sums: FloatArray) -> None:
            loops.evaluate(
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
                sums,
            )

        return self._layout.summed(sums_of, len(which), self._threads)

    def _slots(self, which: Indices) -> Indices:
        """Return the candidates' slots; a new one takes the least recently used slot."""
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
            loops.lay_out(values, layout.images, layout.places, self._whole[oldest[at]])

        list(self._threads.map(work, range(len(missing))))
        return self._slot[which]

    def bound(self, which: Indices, betas: FloatArray) -> Values:
        """Evaluate an upper bound of the scores; no β may be larger than `steepest`."""
        return self._likely.bound(self._base, self._share, which, betas)

    @property
    def steepest(self) -> float:
        """The largest β at which bounds are valid."""
        return self._likely.steepest
