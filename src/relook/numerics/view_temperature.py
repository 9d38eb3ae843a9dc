"""The view temperature κ: how flat each view's prediction is made before views are averaged.

The average is q = mean over views of softmax(log p / κ). κ = 1 is the mean of probabilities, as in
the paper; the larger κ, the closer to the mean of logits, which no single sure view can
outvote. What κ is best depends on the network: one that is too sure of itself (its plain
predictions want a temperature above 1) gains by a κ of 2 to 6; one that was trained with
mixed or smoothed labels wants about 1.

κ is the most probable value given the labels, under a prior that is centred on the temperature of
the plain predictions, and on 1 if that is lower: a hundred images hardly move it, a thousand do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import (
    LOG_FLOOR,
    calibrated_log_likelihoods,
    fit_temperature,
    temper,
)
from relook.numerics.intervals import Groups, independent_images

VIEW_TEMPERATURES = (1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0)
"""The values that κ may take. Finer steps gain nothing that images could show, and below 1, where
one sure view outvotes many, no network gained."""

_LENGTHS = (2, 3, 5, 10, 20)  # views: κ serves every budget
_PRIOR_SPREAD = 1.0  # the standard deviation of log κ
_MOST_IMAGES = 5000  # more cannot change the choice by anything that matters


def choose_view_temperature(
    log_probs: Sequence[LogProbs] | LogProbs,
    labels: Labels,
    weights: FloatArray | None = None,
    groups: Groups | None = None,
) -> float:
    """Return the κ that suits views `[view, image, class]`, the plain image first.

    Averages of the first 2, 3, 5, 10 and 20 views count alike, each calibrated.
    """
    some = np.linspace(0, len(labels) - 1, min(len(labels), _MOST_IMAGES)).astype(np.int64)
    lengths = [length for length in _LENGTHS if length <= len(log_probs)] or [len(log_probs)]
    own = None if weights is None else weights[some]
    first = [np.asarray(one[some]) for one in log_probs[: lengths[-1]]]
    fits = (
        calibrated_log_likelihoods(_averages(first, kappa, lengths), labels[some], own)
        for kappa in VIEW_TEMPERATURES
    )
    scores = [float(by_length.mean()) for by_length, _ in fits]
    counts = np.ones(len(labels)) if weights is None else weights
    independent = independent_images(counts, groups)
    belong = None if groups is None else np.asarray(groups)[some]
    plain = fit_temperature(first[0], labels[some], own, groups=belong)
    return most_probable(scores, independent, plain)


def most_probable(scores: Sequence[float], images: float, plain_temperature: float) -> float:
    """Return the most probable of `VIEW_TEMPERATURES`, given the mean cLL with each.

    `images` is how many independent ones the scores are means of; `plain_temperature` is what
    calibrates the predictions of plain images.
    """
    logs = np.log(VIEW_TEMPERATURES)
    centre = math.log(max(1.0, plain_temperature))
    prior = -((logs - centre) ** 2) / (2 * _PRIOR_SPREAD**2)
    return VIEW_TEMPERATURES[int(np.argmax(images * np.asarray(scores) + prior))]


def _averages(views: Sequence[LogProbs], kappa: float, lengths: Sequence[int]) -> FloatArray:
    """Return the log of the average of the first views, for each length: `[length, n, c]`."""
    total, averages = np.zeros(views[0].shape), []
    for length, view in enumerate(views, start=1):
        total += np.exp(temper(view, kappa))
        if length in lengths:
            averages.append(np.log(np.maximum(total / length, math.exp(LOG_FLOOR))))
    return np.stack(averages)
