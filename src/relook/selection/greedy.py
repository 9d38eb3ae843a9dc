"""The greedy loop (the paper's Algorithm 1), and which scorer runs it.

Small problems, and objectives other than the calibrated log-likelihood, are scored by NumPy;
large ones by compiled kernels, which find the same picks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np

from relook.foundation.progress import StepProgress
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.selection.kernels.memory import COMPACT_FROM, check_memory
from relook.selection.objectives import Objective
from relook.selection.scorers import Pick, PlainScorer, Scorer, SearchResult, extended_mean

COMPILED_FROM = 2_000_000
"""How many values predictions must have to be worth the compiled kernels' first use."""

_CONSERVATIVE_SEARCHES = 5  # about how many a conservative one makes on its way


def is_large(values: int, *, conservative: bool) -> bool:
    """Whether predictions with this many values are worth the compiled kernels."""
    return values * (_CONSERVATIVE_SEARCHES if conservative else 1) >= COMPILED_FROM


@dataclass(frozen=True)
class Scoring:
    """How candidates are scored, whatever their predictions."""

    objective: Objective
    compiled: bool = False
    threads: int | None = None
    memory: int = 16 << 30

    def open(
        self, log_probs: LogProbs, labels: Labels, weights: FloatArray | None
    ) -> AbstractContextManager[Scorer]:
        """Return a scorer of predictions `[candidate, image, class]`, to be used in a `with`."""
        if not self.compiled:
            return nullcontext(PlainScorer(log_probs, labels, self.objective, weights))
        from relook.selection.kernels.compact import CompactScorer  # numba: only where it pays
        from relook.selection.kernels.scorer import CompiledScorer

        if log_probs.shape[2] >= COMPACT_FROM:
            return CompactScorer(log_probs, labels, weights, self.threads, self.memory)
        check_memory(log_probs.shape, self.memory)
        return CompiledScorer(log_probs, labels, weights, self.threads)


def search_with(
    scorer: Scorer,
    log_probs: LogProbs,
    length: int,
    start: Sequence[int] = (),
    progress: StepProgress | None = None,
    picked: Callable[[Pick], None] | None = None,
) -> SearchResult:
    """Pick, extend the average, go on: `length` entries, of which `start` are given."""
    mean = np.zeros(log_probs.shape[1:])  # the policy's average probabilities, π
    temperature = 1.0
    picks: list[Pick] = []
    for step in range(1, length + 1):
        if step <= len(start):
            pick = scorer.only(int(start[step - 1]), mean, step, temperature)
        else:
            pick = scorer.best(mean, step, temperature)
        mean = extended_mean(mean, log_probs[pick.candidate], step)
        temperature = pick.temperature
        picks.append(pick)
        if picked is not None and step > len(start):
            picked(pick)
        if progress is not None:
            progress(step, length, pick.score)
    return SearchResult.of(picks)
