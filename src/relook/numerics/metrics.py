"""Metrics of predictions: pure functions of log-probabilities `[n, c]` and labels `[n]`.

Each takes optional weights `[n]`, one for each image, and returns a float.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import floor_log_probs, weighted_mean
from relook.numerics.intervals import Interval, paired_interval, share_interval

ECE_BINS = 15

COVERAGES = (0.8, 0.9, 0.95, 1.0)
"""The shares of images that are answered; the least certain ones are not."""

_CURVE = np.arange(1, 101) / 100


def accuracy(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the share of images whose most probable class is the label."""
    return float(weighted_mean(per_image_accuracy(log_probs, labels), weights))


def log_likelihood(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the mean log-probability of the labels, each floored at −80."""
    return float(weighted_mean(per_image_log_likelihood(log_probs, labels), weights))


def brier(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the Brier score: squared error summed over classes, mean over images."""
    return float(weighted_mean(per_image_brier(log_probs, labels), weights))


def ece(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the expected calibration error over 15 equally wide bins of the top probability.

    A bin is open on the left and closed on the right.
    """
    confidence = confidences(log_probs)
    bins = np.clip(np.ceil(confidence * ECE_BINS).astype(np.int64) - 1, 0, ECE_BINS - 1)
    surplus = per_image_accuracy(log_probs, labels) - confidence
    return _binned_error(surplus, bins, _weights(labels, weights))


def adaptive_ece(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the expected calibration error over 15 bins of as many images each."""
    confidence, own = confidences(log_probs), _weights(labels, weights)
    order = np.argsort(confidence, kind="stable")
    middles = np.cumsum(own[order]) - own[order] / 2
    bins = np.empty(len(labels), dtype=np.int64)
    bins[order] = np.minimum(middles * ECE_BINS / own.sum(), ECE_BINS - 1).astype(np.int64)
    return _binned_error(per_image_accuracy(log_probs, labels) - confidence, bins, own)


def classwise_ece(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the mean over classes of the calibration error of each class's probability.

    The bins are those of `ece` (Kull et al. 2019).
    """
    own, errors = _weights(labels, weights), []
    for label in range(log_probs.shape[1]):
        chance = np.exp(log_probs[:, label], dtype=np.float64)
        bins = np.clip(np.ceil(chance * ECE_BINS).astype(np.int64) - 1, 0, ECE_BINS - 1)
        errors.append(_binned_error((labels == label) - chance, bins, own))
    return float(np.mean(errors))


@dataclass(frozen=True)
class Answered:
    """The accuracy if only a share of the images is answered, the most certain ones.

    `over_plain` is the gain over the plain image; the intervals of all shares hold simultaneously.
    """

    share: float
    accuracy: float
    over_plain: Interval | None = None


@dataclass(frozen=True)
class Selective:
    """Selective prediction: the accuracy if only the most certain images are answered.

    `aurc` is the mean share of wrong answers over all coverages; `curve` has that share at 1 %,
    2 % … 100 %. The calibration errors are those of calibrated predictions.
    """

    at: tuple[Answered, ...]
    aurc: float
    curve: tuple[float, ...]
    adaptive_ece: float | None = None
    classwise_ece: float | None = None

    def answering(self, share: float) -> Answered | None:
        """Return the entry of `at` for a share, if there is one."""
        return next((entry for entry in self.at if entry.share == share), None)


@dataclass(frozen=True)
class SelectiveRisks:
    """Selective prediction by calibrated confidence, and by disagreement of the policy's views."""

    plain: Selective
    policy: Selective
    disagreement: Selective


def selective(
    sureness: FloatArray,
    right: FloatArray,
    plain: tuple[FloatArray, FloatArray] | None = None,
    *,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
) -> Selective:
    """Evaluate answering only the most certain images; `right` `[n]` is 1 or 0.

    `plain` has `sureness` and `right` of the plain image, to compare with.
    """
    own = np.ones(len(right)) if weights is None else weights

    def lost(coverage: float, sure: FloatArray, correct: FloatArray) -> FloatArray:
        return answered(sure, coverage, own) * (1 - correct)

    def risk(coverage: float) -> float:
        return float((own * lost(coverage, sureness, right)).sum() / own.sum() / coverage)

    def over(coverage: float) -> Interval | None:
        if plain is None:
            return None
        saved = lost(coverage, *plain) - lost(coverage, sureness, right)
        confidence = 1 - 0.05 / len(COVERAGES)
        one = share_interval(saved, confidence=confidence, groups=groups, weights=weights)
        estimate, low, high = (end / coverage for end in (one.estimate, one.low, one.high))
        return Interval(estimate, low, high, confidence)

    return Selective(
        tuple(Answered(one, 1 - risk(one), over(one)) for one in COVERAGES),
        aurc(sureness, right, own),
        tuple(map(risk, _CURVE)),
    )


def answered(sureness: FloatArray, coverage: float, weights: FloatArray) -> FloatArray:
    """Return the part of each image that is answered `[n]`, so that a share of all is.

    The most certain come first; of equally certain ones at the limit, each is answered in part.
    """
    _, places = np.unique(-sureness, return_inverse=True)
    sizes = np.bincount(places, weights)
    before = np.cumsum(sizes) - sizes
    parts = np.clip((coverage * weights.sum() - before) / sizes, 0.0, 1.0)
    return np.asarray(parts[places])


def aurc(sureness: FloatArray, right: FloatArray, weights: FloatArray | None = None) -> float:
    """Return the mean share of wrong answers among the k most certain images, over all k.

    Geifman and El-Yaniv's area under the risk-coverage curve, independent of the order of equally
    certain images.
    """
    own = np.ones(len(right)) if weights is None else weights
    _, places = np.unique(-sureness, return_inverse=True)
    wrong = (np.bincount(places, own * (1 - right)) / np.bincount(places, own))[places]
    order = np.argsort(places, kind="stable")
    risks = np.cumsum((own * wrong)[order]) / np.cumsum(own[order])
    return float((own[order] * risks).sum() / own.sum())


def confidences(log_probs: LogProbs) -> FloatArray:
    """Return the probability of each image's most probable class `[n]`."""
    return np.asarray(np.exp(log_probs.max(axis=1).astype(np.float64)))


def entropy(log_probs: LogProbs) -> FloatArray:
    """Return the entropy of log-probabilities `[…, class]` over their classes, in nats."""
    values = floor_log_probs(log_probs)
    return np.asarray(-(np.exp(values) * values).sum(axis=-1))


def mutual_information(views: Iterable[LogProbs]) -> FloatArray:
    """Return the disagreement of views on each image `[n]`, in nats, at least 0.

    That is the entropy of their mean minus the mean of their entropies. `views` yields
    log-probabilities `[n, c]`, tempered as they are averaged.
    """
    entropies = []
    total: FloatArray | float = 0.0
    for one in views:
        total = total + np.exp(one, dtype=np.float64)
        entropies.append(entropy(one))
    mean = np.log(np.maximum(total / len(entropies), np.finfo(np.float64).tiny))
    return np.asarray(np.maximum(entropy(mean) - np.mean(entropies, axis=0), 0.0))


def per_image_accuracy(log_probs: LogProbs, labels: Labels) -> FloatArray:
    """Return 1.0 for each image whose most probable class is the label, else 0.0: `[n]`."""
    return np.asarray(log_probs.argmax(axis=1) == labels, dtype=np.float64)


def per_image_log_likelihood(log_probs: LogProbs, labels: Labels) -> FloatArray:
    """Return each label's log-probability, floored at −80: `[n]`."""
    return floor_log_probs(np.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0])


def per_image_brier(log_probs: LogProbs, labels: Labels) -> FloatArray:
    """Return each image's squared error summed over the classes: `[n]`, from 0 to 2."""
    errors = np.exp(log_probs, dtype=np.float64)
    errors[np.arange(len(labels)), labels] -= 1.0
    return np.asarray((errors**2).sum(axis=1))


def _weights(labels: Labels, weights: FloatArray | None) -> FloatArray:
    return np.ones(len(labels)) if weights is None else weights


def _binned_error(surplus: FloatArray, bins: Labels, weights: FloatArray) -> float:
    """Return the mean over images of their bin's absolute mean surplus."""
    return float(np.abs(np.bincount(bins, weights * surplus)).sum() / weights.sum())


def auroc(own: FloatArray, foreign: FloatArray) -> float:
    """Return the share of pairs in which the own image has the higher score; ties count half."""
    return float(_placements(own, foreign).mean())


def fpr95(own: FloatArray, foreign: FloatArray) -> float:
    """Return the share of foreign images that pass the threshold of 95 % of the own ones."""
    threshold = np.quantile(own, 0.05, method="lower")
    return float((foreign >= threshold).mean())


def auroc_gain(
    one: tuple[FloatArray, FloatArray],
    other: tuple[FloatArray, FloatArray],
    groups: ArrayLike | None = None,
    confidence: float = 0.95,
) -> Interval:
    """Return the difference of two scores of the same images in AUROC (DeLong et al. 1988).

    Each is a pair of own and foreign scores; `groups` `[n]` are those of the own images.
    """
    differences = _placements(*one) - _placements(*other)
    own = paired_interval(differences, groups=groups, confidence=confidence)
    swapped = (_placements(-foreign, -mine) for mine, foreign in (one, other))
    foreign = paired_interval(np.subtract(*swapped), confidence=confidence)
    reach = math.hypot(own.high - own.estimate, foreign.high - foreign.estimate)
    return Interval(own.estimate, own.estimate - reach, own.estimate + reach, confidence)


def _placements(scores: FloatArray, others: FloatArray) -> FloatArray:
    """Return the share of the others below each score `[n]`; ties count half."""
    ordered = np.sort(others)
    sides = [np.searchsorted(ordered, scores, side) for side in ("left", "right")]
    return np.asarray((sides[0] + sides[1]) / (2 * len(others)))
