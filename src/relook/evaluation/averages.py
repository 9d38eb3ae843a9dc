"""Two averages of the same views: the usual one, and one whose view temperature is learned.

A baseline gets the chance that a policy has: a part of the images says at which view temperature
its views are averaged, and other images score that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.evaluation.cross_validation import prefix_log_probs
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import (
    TEMPERATURE_RANGE,
    calibrated_log_likelihood,
    floor_log_probs,
    temper,
    weighted_mean,
)
from relook.numerics.intervals import independent_images
from relook.numerics.view_temperature import VIEW_TEMPERATURES, most_probable

_LENGTHS = (5, 20)  # few views and many: one view temperature serves every budget
_MOST_IMAGES = 5000  # as many as the choice of a policy's looks at


def prefix_averages(
    log_probs: LogProbs, lengths: Sequence[int], view_temperatures: Iterable[float]
) -> Iterator[dict[float, FloatArray]]:
    """Yield, for each rising length k, the average `[n, c]` of the first k views by temperature."""
    wanted = dict.fromkeys(view_temperatures)
    made = [prefix_log_probs(_tempered(log_probs, kappa), lengths) for kappa in wanted]
    for means in zip(*made, strict=True):
        yield dict(zip(wanted, means, strict=True))


def learned_view_temperatures(
    log_probs: LogProbs,
    labels: Labels,
    parts: Sequence[Indices],
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
) -> list[float]:
    """Return the view temperature that each part of the images asks for; 1 for a single view.

    `log_probs` `[view, n, c]`; `weights` `[n]` make all means weighted ones. It is the most
    probable one, as a policy's is. Each average is made and calibrated once; how well it can be
    calibrated on a part follows from the first two derivatives of its images' log-likelihoods.
    """
    if len(log_probs) < 2:
        return [1.0] * len(parts)
    some = np.linspace(0, len(labels) - 1, min(len(labels), _MOST_IMAGES)).astype(np.int64)
    known, own = labels[some], np.asarray(log_probs[: _LENGTHS[-1], some])
    lengths = sorted({min(length, len(own)) for length in _LENGTHS})
    counts = np.ones(len(labels)) if weights is None else weights
    expansions: Mapping[float, list[_Expansion]] = {kappa: [] for kappa in VIEW_TEMPERATURES}
    for averages in prefix_averages(own, lengths, VIEW_TEMPERATURES):
        for kappa, mean in averages.items():
            expansions[kappa].append(_expansion(mean, known, counts[some]))
    first = _expansion(own[0], known, counts[some])
    found = []
    for part in parts:
        inside = np.isin(some, part)
        scores = [np.mean([one.best(inside)[0] for one in expansions[k]]) for k in expansions]
        belong = None if groups is None else np.asarray(groups)[part]
        images = independent_images(counts[part], belong)
        found.append(most_probable([float(one) for one in scores], images, first.best(inside)[1]))
    return found


@dataclass(frozen=True)
class _Expansion:
    """Each image's log-likelihood at the best β = 1/τ of all, its slope, and minus its bend."""

    beta: float
    score: FloatArray
    slope: FloatArray
    bend: FloatArray
    weights: FloatArray

    def best(self, part: NDArray[np.bool_]) -> tuple[float, float]:
        """Return how high the mean over a part gets, and at which temperature."""
        score, slope, bend = (
            float(weighted_mean(one[part], self.weights[part]))
            for one in (self.score, self.slope, self.bend)
        )
        step = slope / bend if bend > 0 else 0.0
        return score + slope * step / 2, 1 / max(self.beta + step, 1 / TEMPERATURE_RANGE[1])


def _tempered(log_probs: LogProbs, view_temperature: float) -> Iterator[LogProbs]:
    return (one if view_temperature == 1 else temper(one, view_temperature) for one in log_probs)


def _expansion(log_probs: LogProbs, labels: Labels, weights: FloatArray) -> _Expansion:
    _, temperature = calibrated_log_likelihood(log_probs, labels, weights)
    scores = temper(log_probs, temperature)
    shares, gaps = np.exp(scores), floor_log_probs(log_probs)
    own = np.arange(len(labels)), labels
    mean = (shares * gaps).sum(axis=-1)
    bend = (shares * gaps**2).sum(axis=-1) - mean**2
    return _Expansion(1 / temperature, scores[own], gaps[own] - mean, bend, weights)
