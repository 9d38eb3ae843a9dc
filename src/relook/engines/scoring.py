"""The scoring of candidates, split over workers: each holds some of them for the whole search.

A candidate's score is the same to the last bit wherever it is computed, so the picks are those
of one process. It pays for objectives that NumPy scores (accuracy, ll, brier, ece, a function)
over many predictions. The calibrated log-likelihood is scored in this process: its compiled
kernels take less time than it takes to send the predictions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from relook.calibration import FloatArray, Labels, LogProbs
from relook.engines.worker import Failure, last_line
from relook.errors import RelookError, RunError
from relook.objectives import OBJECTIVES, Objective
from relook.selection.greedy import Pick, PlainScorer, first_best, score_candidates

_MOST_LOSSES = 3  # of workers, for one share


class ScoringWorker:
    """Some candidates, held for a whole search."""

    def __init__(self, directory: str) -> None:
        sys.path.append(directory)

    def take(
        self,
        log_probs: LogProbs,
        labels: Labels,
        objective: str | Objective,
        weights: FloatArray | None,
    ) -> None:
        """Hold candidates `[k, n, c]`, and what scores them; a name stands for a table's row."""
        own = OBJECTIVES[objective] if isinstance(objective, str) else objective
        self._plain = PlainScorer(log_probs, labels, own, weights)

    def scores(self, mean: FloatArray, step: int, temperature: float) -> FloatArray | Failure:
        """Score all candidates `[k]` as the policy's entry number `step`."""
        own = self._plain
        try:
            return score_candidates(
                own.log_probs, own.labels, mean, step, own.objective, own.weights, temperature
            )
        except RelookError as error:
            return Failure(str(error))


@dataclass
class _Share:
    """A part of the candidates, the worker that holds it, and how many were lost with it."""

    part: slice
    actor: Any
    losses: int = 0


class SplitScorer:
    """A plain scorer whose candidates are scored by several workers at once."""

    def __init__(self, ray: Any, plain: PlainScorer, hire: Any, count: int) -> None:
        self._ray, self._plain, self._hire = ray, plain, hire
        bounds = np.linspace(0, len(plain.log_probs), min(count, len(plain.log_probs)) + 1)
        edges = [int(bound) for bound in bounds]
        self._shares = [
            _Share(slice(begin, end), self._hired(slice(begin, end)))
            for begin, end in pairwise(edges)
        ]

    def best(self, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return the best candidate; of equals, the first."""
        asked = self._ray.put(mean)
        waiting = [share.actor.scores.remote(asked, step, temperature) for share in self._shares]
        scores = [
            self._answer(share, ref, (asked, step, temperature))
            for share, ref in zip(self._shares, waiting, strict=True)
        ]
        best = first_best(np.concatenate(scores))
        return self._plain.only(best, mean, step, temperature)

    def only(self, candidate: int, mean: FloatArray, step: int, temperature: float) -> Pick:
        """Return this candidate with its score."""
        return self._plain.only(candidate, mean, step, temperature)

    def close(self) -> None:
        """Let the workers go."""
        for share in self._shares:
            self._ray.kill(share.actor)

    def _answer(self, share: _Share, ref: Any, question: tuple[Any, int, float]) -> FloatArray:
        """Return a share's scores, from another worker where this one is lost."""
        while True:
            try:
                answer: FloatArray | Failure = self._ray.get(ref)
            except self._ray.exceptions.RayActorError as error:
                share.losses += 1
                if share.losses >= _MOST_LOSSES:
                    raise RunError(
                        f"{_MOST_LOSSES} workers were lost one after another while they scored "
                        "candidates: perhaps they need more memory; run the same command again"
                    ) from error
                share.actor = self._hired(share.part)
                ref = share.actor.scores.remote(*question)
                continue
            if isinstance(answer, Failure):
                raise RelookError(answer.text)
            return answer

    def _hired(self, part: slice) -> Any:
        plain = self._plain
        known = OBJECTIVES.get(plain.objective.name) is plain.objective
        objective = plain.objective.name if known else plain.objective
        actor = self._hire()
        own = np.ascontiguousarray(plain.log_probs[part])
        taken = actor.take.remote(self._ray.put(own), plain.labels, objective, plain.weights)
        try:
            self._ray.get(taken)
        except self._ray.exceptions.RayError as error:
            raise RunError(
                f"candidates cannot be scored by workers: {last_line(error)}: use the local engine"
            ) from error
        return actor


@contextmanager
def split(ray: Any, plain: PlainScorer, hire: Any, count: int) -> Iterator[SplitScorer]:
    """Have the candidates of a plain scorer scored by workers within the block."""
    scorer = SplitScorer(ray, plain, hire, count)
    try:
        yield scorer
    finally:
        scorer.close()
