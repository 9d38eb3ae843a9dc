"""Search among many classes: a compact form proposes, the full predictions decide.

For each image the compact form keeps the label's class, the likeliest classes by the pool's mean,
and a candidate's mass on all others, assumed to be spread alike by all candidates. The full
predictions stay where they are (in a memory map, say): they are read once, and then only for
proposals.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs, runs
from relook.selection.greedy import Pick
from relook.selection.kernels import compact_loops, loops
from relook.selection.kernels.arithmetic import LANES
from relook.selection.kernels.bounds import HIGHEST_BETA, LOWEST_BETA, Values, upper_bounds
from relook.selection.kernels.scorer import ExactScorer
from relook.selection.kernels.screening import GRID
from relook.selection.plan import classes_to_keep
from relook.selection.predictions import SUSPECT, RowReader, check_rows, normalised_within

_PROPOSALS = 6  # candidates scored on the full predictions at each step
_LIKELY = 64  # candidates whose β is fitted on the compact form
_FIRST_SLACK = 1e-4  # more than the error of float32
_BLOCKS = 4
_PART = 16 * LANES  # images read at once
_SAMPLED = 24  # candidates whose mean decides which classes are kept
_GUESSES = 3  # of a candidate's β, from its first images
_ABOVE = 1.03  # times the guess: the bound is tighter downwards
_STEEPEST = 60.0  # ÷ log₂(classes): the largest β that the row kernels take
_WAITING = 2  # threads for each core while predictions are read: some wait for the disk


class CompactScorer(ExactScorer):
    """Finds a candidate whose score is the best or very nearly so.

    The first step is exact, and so is every score that is returned.
    """

    def __init__(
        self,
        log_probs: LogProbs,
        labels: Labels,
        weights: FloatArray | None = None,
        threads: int | None = None,
        memory: int = 16 << 30,
    ) -> None:
        self._kept = classes_to_keep(log_probs.shape, memory)
        super().__init__(log_probs, labels, weights, threads)

    def _prepare(self, log_probs: LogProbs, weights: FloatArray | None) -> None:
        self._compact = read_predictions(
            log_probs, self._rows, self._labels, weights, self._kept, self._cores
        )

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best of the proposed candidates; in a tie, the first."""
        which, betas = (
            self._possible_first(mean)
            if step == 1
            else self._proposals(mean, step, 1 / temperature)
        )
        return self.only(self._best_of(which, betas, mean, step), mean, step, temperature)

    def _possible_first(self, mean: FloatArray) -> tuple[Indices, FloatArray]:
        """Return all candidates that may be the best alone, ascending, and their β."""
        guesses, values = self._compact.betas, self._compact.alone
        betas, estimates = newton(guesses, values)
        likely = int(np.argmax(estimates))
        reached = self.only(likely, mean, 1, 1 / betas[likely]).score
        upper = upper_bounds(guesses, values, 80.01, mean.shape[1])
        which = np.flatnonzero(upper >= reached - _FIRST_SLACK)
        return which, betas[which]

    def _proposals(self, mean: FloatArray, step: int, beta: float) -> tuple[Indices, FloatArray]:
        """Return the candidates that are best in the compact form, ascending, and their β.

        Results of earlier steps are not used: a resumed search must propose the same.
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
        parts = runs(len(compact.weights), _BLOCKS)
        different, tail_of = np.unique(betas, return_inverse=True)
        sums = np.empty((len(parts), len(which), 3))
        share = np.float32(1 / step)

        def work(at: int) -> None:
            part = parts[at]
            count = part.stop - part.start
            base = np.zeros((count, kept, LANES), np.float32)
            rest = np.zeros((count, LANES), np.float32)
            tails = np.zeros((len(different), 3, count, LANES), np.float32)
            for block in range(count):
                images = compact.images(part.start + block)
                compact_loops.describe_rest(
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
            loops.evaluate(
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
    """Return β after one Newton step, and the score to expect there."""
    with np.errstate(divide="ignore", invalid="ignore"):
        move = np.nan_to_num(values.slope / values.bend)
    move = np.clip(move, -0.2 * betas, 0.2 * betas)
    moved = np.clip(betas + move, LOWEST_BETA, HIGHEST_BETA)
    return moved, values.score + 0.5 * (moved - betas) * values.slope


@dataclass(frozen=True)
class Compact:
    """The kept classes of all predictions, and values found while reading them.

    `pool` `[candidate, block, kept + 1, lane]` holds probabilities × 2^24, the last being the mass
    of all classes that are not kept; `order` `[n, kept]` lists the kept classes; `pool_mean`
    `[n, c]` is the average of some candidates. `alone` `[k]` are the candidates' own values at
    `betas` `[k]`.
    """

    pool: NDArray[np.float32]
    order: NDArray[np.int32]
    pool_mean: NDArray[np.float32]
    weights: NDArray[np.float32]  # [block, lane]
    betas: FloatArray
    alone: Values

    def images(self, block: int) -> slice:
        """Return the images of a block."""
        return slice(block * LANES, min((block + 1) * LANES, len(self.order)))


def read_predictions(
    log_probs: LogProbs,
    rows: RowReader,
    labels: Labels,
    weights: FloatArray | None,
    kept: int,
    cores: int,
) -> Compact:
    """Read all predictions once: fill the compact form, and evaluate each candidate alone."""
    candidates, images, _ = log_probs.shape
    blocks = -(-images // LANES)
    pool = np.empty((candidates, blocks, kept + 1, LANES), np.float32)
    pool[:, -1] = 0
    shares = np.full(images, 1 / images) if weights is None else weights / weights.sum()
    lanes = np.zeros((blocks, LANES), np.float32)
    lanes.reshape(-1)[:images] = shares
    betas, sums = np.empty(candidates), np.zeros((candidates, 3))
    odd = np.zeros(candidates)
    parts = runs(images, _PART)
    tolerance = np.float32(SUSPECT * normalised_within(log_probs))
    with ThreadPoolExecutor(_WAITING * cores) as threads:
        pool_mean, order = _likeliest(rows, log_probs.shape, labels, parts, kept, threads)

        def work(candidate: int) -> None:
            for part in parts:
                values = rows.part(candidate, part)
                if part.start == 0:
                    betas[candidate] = _guess(values, labels[part])
                odd[candidate] += compact_loops.keep_first(
                    values, order[part], tolerance, part.start, pool[candidate]
                )
                compact_loops.values_alone(
                    values,
                    labels[part],
                    shares[part],
                    np.float32(betas[candidate]),
                    sums[candidate],
                )

        list(threads.map(work, range(candidates)))
    check_rows(log_probs, np.flatnonzero(odd))
    return Compact(pool, order, pool_mean, lanes, betas, Values(*sums.T))


def _likeliest(
    rows: RowReader,
    shape: tuple[int, ...],
    labels: Labels,
    parts: list[slice],
    kept: int,
    threads: Executor,
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Return the mean of some candidates `[n, c]`, and the classes to keep `[n, kept]`."""
    candidates, images, classes = shape
    sample = np.unique(np.linspace(0, candidates - 1, min(candidates, _SAMPLED)).astype(int))
    mean = np.zeros((images, classes), np.float32)
    order = np.empty((images, kept), np.int32)

    def work(part: slice) -> None:
        for candidate in sample:
            compact_loops.add_probabilities(rows.part(candidate, part), mean[part])
        mean[part] *= np.float32(2.0**-24 / len(sample))
        keys = -mean[part]
        keys[np.arange(len(keys)), labels[part]] = -np.inf
        order[part] = np.argpartition(keys, kept - 1, axis=1)[:, :kept]
        # The label's class comes first.
        own = np.argmax(order[part] == labels[part, None], axis=1)
        order[np.arange(part.start, part.stop), own] = order[part, 0]
        order[part, 0] = labels[part]

    list(threads.map(work, parts))
    return mean, order


def _guess(values: NDArray[Any], labels: Labels) -> float:
    """Estimate a candidate's best β from its first images."""
    weights = np.full(len(labels), 1 / len(labels))
    highest = min(HIGHEST_BETA, _STEEPEST / math.log2(values.shape[1]))
    beta = 1.0
    for _ in range(_GUESSES):
        sums = np.zeros(3)
        compact_loops.values_alone(values, labels, weights, np.float32(beta), sums)
        move = sums[1] / sums[2] if sums[2] > 0 else 0.0
        beta = min(max(beta + move, 0.7 * beta, LOWEST_BETA), 1.3 * beta, highest)
    return float(np.float32(min(_ABOVE * beta, highest)))
