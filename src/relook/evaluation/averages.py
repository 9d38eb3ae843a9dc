"""Two averages of the same views: the usual one, and one whose view temperature is learned.

A baseline gets the chance that a policy has: a part of the images says at which view temperature
its views are averaged, and other images score that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from relook.evaluation.cross_validation import prefix_log_probs
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import calibrated_log_likelihood, floor_log_probs, temper
from relook.numerics.intervals import mean_and_error

VIEW_TEMPERATURES = (1.0, 0.7, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
"""What is tried, the usual average first."""

_FEW = 5  # views: what they ask for counts as much as what all of them do

Expansion = tuple[FloatArray, FloatArray, FloatArray]


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
) -> list[float]:
    """Return the view temperature that each part of the images asks for; 1 unless it gains.

    `log_probs` `[view, n, c]`. A gain in cLL counts as far as it exceeds its standard error. Each
    average is made and calibrated once; how well it can be calibrated on a part follows from the
    first two derivatives of its images' log-likelihoods.
    """
    if len(log_probs) < 2:
        return [1.0] * len(parts)
    lengths = sorted({min(_FEW, len(log_probs)), len(log_probs)})
    expansions: Mapping[float, list[Expansion]] = {kappa: [] for kappa in VIEW_TEMPERATURES}
    for averages in prefix_averages(log_probs, lengths, VIEW_TEMPERATURES):
        for kappa, mean in averages.items():
            expansions[kappa].append(_expansion(mean, labels))
    together = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    return [_choice(expansions, part, together) for part in parts]


def _tempered(log_probs: LogProbs, view_temperature: float) -> Iterator[LogProbs]:
    return (one if view_temperature == 1 else temper(one, view_temperature) for one in log_probs)


def _expansion(log_probs: FloatArray, labels: Labels) -> Expansion:
    """Return each image's log-likelihood at the best 1/τ of all, its slope, and minus its bend."""
    _, temperature = calibrated_log_likelihood(log_probs, labels)
    scores = temper(log_probs, temperature)
    shares, gaps = np.exp(scores), floor_log_probs(log_probs)
    own = np.arange(len(labels)), labels
    mean = (shares * gaps).sum(axis=-1)
    bend = (shares * gaps**2).sum(axis=-1) - mean**2
    return scores[own], gaps[own] - mean, bend


def _choice(
    expansions: Mapping[float, list[Expansion]], part: Indices, groups: Indices | None
) -> float:
    usual, even = expansions[1.0], np.ones(len(part))
    together = None if groups is None else groups[part]
    best, most = 1.0, 0.0
    for kappa, own in expansions.items():
        gain = np.mean([_best(one, part) for one in own]) - np.mean([_best(u, part) for u in usual])
        change = np.mean([one[0][part] - u[0][part] for one, u in zip(own, usual, strict=True)], 0)
        sure = float(gain) - mean_and_error(change, even, together)[1]
        if sure > most:
            best, most = kappa, sure
    return best


def _best(one: Expansion, part: Indices) -> float:
    score, slope, bend = (float(values[part].mean()) for values in one)
    return score + (slope**2 / (2 * bend) if bend > 0 else 0.0)
