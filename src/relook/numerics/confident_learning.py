"""Confident learning (Northcutt et al. 2021): labels that confident predictions contradict.

Arguments are log-probabilities `[n, c]` of a model that was not trained on these images, and the
labels `[n]` that were given.
"""

from __future__ import annotations

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs

NO_CLASS = -1

_SLACK = 1e-6  # a probability that equals its threshold but for rounding is confident


def self_confidence(log_probs: LogProbs, labels: Labels) -> FloatArray:
    """Return the probability of each image's own label `[n]`: the lower, the more suspect."""
    own = np.take_along_axis(log_probs, labels[:, None], axis=1)[:, 0]
    return np.exp(own, dtype=np.float64)


def class_thresholds(log_probs: LogProbs, labels: Labels, fewest: int = 1) -> FloatArray:
    """Return the mean self-confidence of each class's images `[c]`.

    A class with fewer images than `fewest` has none: infinity.
    """
    classes = log_probs.shape[1]
    images = np.bincount(labels, minlength=classes)
    sums = np.bincount(labels, self_confidence(log_probs, labels), minlength=classes)
    return np.where(images >= fewest, sums / np.maximum(images, 1), np.inf)


def confident_classes(log_probs: LogProbs, thresholds: FloatArray) -> Labels:
    """Return the likeliest class of each image that reaches its threshold `[n]`, or `NO_CLASS`."""
    reached = np.exp(log_probs, dtype=np.float64) >= thresholds - _SLACK
    likeliest = np.where(reached, log_probs, -np.inf).argmax(axis=1)
    return np.where(reached.any(axis=1), likeliest, NO_CLASS)
