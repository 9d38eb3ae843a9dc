"""The view temperature κ, which flattens each view's prediction before views are averaged.

The average is q = mean over views of softmax(log p / κ). κ = 1 is the mean of probabilities, as in
the paper; the larger κ, the closer to the mean of logits, which no single confident view can
outvote. The best κ depends on the network: 2 to 6 for an overconfident one (whose plain
predictions need a temperature above 1), about 1 for one trained with mixed or smoothed labels.

κ is the most probable value given the labels, under a prior centred on the temperature of the plain
predictions, or on 1 if that is lower: a hundred images hardly move it, a thousand do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import (
    TEMPERATURE_RANGE,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
    fit_temperature,
    floor_log_probs,
    prefix_log_probs,
    temper,
    weighted_mean,
)
from relook.numerics.intervals import Groups, independent_images

VIEW_TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""The possible values of κ. Finer steps gain nothing measurable, and below 1, where one confident
view outvotes many, no network gained."""

_LENGTHS = (2, 3, 5, 10, 20)  # views: κ serves every budget
_BASELINE_LENGTHS = (5, 20)  # fewer, as there are many baselines
_PRIOR_SPREAD = 1.0  # the standard deviation of log κ
_MAX_IMAGES = 5000  # more would not change the choice noticeably


def choose_view_temperature(
    log_probs: Sequence[LogProbs] | LogProbs,
    labels: Labels,
    weights: FloatArray | None = None,
    groups: Groups | None = None,
) -> float:
    """Return the best κ for views `[view, image, class]`, the plain image first.

    Averages of the first 2, 3, 5, 10 and 20 views count alike, each calibrated.
    """
    some = np.linspace(0, len(labels) - 1, min(len(labels), _MAX_IMAGES)).astype(np.int64)
    lengths = [length for length in _LENGTHS if length <= len(log_probs)] or [len(log_probs)]
    own = None if weights is None else weights[some]
    first = [np.asarray(one[some]) for one in log_probs[: lengths[-1]]]
    scores = np.zeros(len(VIEW_TEMPERATURES))
    for averages in prefix_averages(first, lengths, VIEW_TEMPERATURES):
        by_kappa = np.stack([averages[kappa] for kappa in VIEW_TEMPERATURES])
        scores += calibrated_log_likelihoods(by_kappa, labels[some], own)[0] / len(lengths)
    counts = np.ones(len(labels)) if weights is None else weights
    belong = None if groups is None else np.asarray(groups)[some]
    plain = fit_temperature(first[0], labels[some], own, groups=belong)
    return most_probable(scores.tolist(), independent_images(counts, groups), plain)


def most_probable(scores: Sequence[float], images: float, plain_temperature: float) -> float:
    """Return the most probable of `VIEW_TEMPERATURES`, given the mean cLL with each.

    `images` is the number of independent images behind the scores; `plain_temperature` is the
    temperature that calibrates plain images.
    """
    logs = np.log(VIEW_TEMPERATURES)
    centre = math.log(max(1.0, plain_temperature))
    prior = -((logs - centre) ** 2) / (2 * _PRIOR_SPREAD**2)
    return VIEW_TEMPERATURES[int(np.argmax(images * np.asarray(scores) + prior))]


def prefix_averages(
    log_probs: Sequence[LogProbs] | LogProbs,
    lengths: Sequence[int],
    view_temperatures: Iterable[float],
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
    """Return the most probable view temperature for each part of the images; 1 for a single view.

    `log_probs` is `[view, n, c]`; `weights` `[n]` make all means weighted ones. Each average is
    made and calibrated once; its best score on a part follows from the first two derivatives of
    the images' log-likelihoods.
    """
    if len(log_probs) < 2:
        return [1.0] * len(parts)
    some = np.linspace(0, len(labels) - 1, min(len(labels), _MAX_IMAGES)).astype(np.int64)
    known, own = labels[some], np.asarray(log_probs[: _BASELINE_LENGTHS[-1], some])
    lengths = sorted({min(length, len(own)) for length in _BASELINE_LENGTHS})
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
    """Each image's log-likelihood at the best common β = 1/τ, its slope and negative curvature."""

    beta: float
    score: FloatArray
    slope: FloatArray
    bend: FloatArray
    weights: FloatArray

    def best(self, part: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the highest mean over a part, and its temperature."""
        score, slope, bend = (
            float(weighted_mean(one[part], self.weights[part]))
            for one in (self.score, self.slope, self.bend)
        )
        step = slope / bend if bend > 0 else 0.0
        return score + slope * step / 2, 1 / max(self.beta + step, 1 / TEMPERATURE_RANGE[1])


def _tempered(log_probs: Iterable[LogProbs], view_temperature: float) -> Iterator[LogProbs]:
    return (one if view_temperature == 1 else temper(one, view_temperature) for one in log_probs)


def _expansion(log_probs: LogProbs, labels: Labels, weights: FloatArray) -> _Expansion:
    _, temperature = calibrated_log_likelihood(log_probs, labels, weights)
    scores = temper(log_probs, temperature)
    shares, gaps = np.exp(scores), floor_log_probs(log_probs)
    own = np.arange(len(labels)), labels
    mean = (shares * gaps).sum(axis=-1)
    bend = (shares * gaps**2).sum(axis=-1) - mean**2
    return _Expansion(1 / temperature, scores[own], gaps[own] - mean, bend, weights)
