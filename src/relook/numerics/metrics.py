"""Metrics of predictions: pure functions of log-probabilities `[n, c]` and labels `[n]`.

Each takes optional weights `[n]`, one for each image, and returns a float.
"""

from __future__ import annotations

import numpy as np

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import floor_log_probs, weighted_mean

ECE_BINS = 15


def accuracy(log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None) -> float:
    """Return the share of images whose most probable class is the label."""
    return float(weighted_mean(per_image_accuracy(log_probs, labels), weights))


def top_k_accuracy(
    log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None, k: int = 5
) -> float:
    """Return the share of images whose label is among the k most probable classes.

    With k classes or fewer it is 1; of equally probable classes the lower index comes first.
    """
    own = np.take_along_axis(log_probs, labels[:, None], axis=1)
    earlier = np.arange(log_probs.shape[1]) < labels[:, None]
    rank = ((log_probs > own) | ((log_probs == own) & earlier)).sum(axis=1)
    return float(weighted_mean((rank < k).astype(np.float64), weights))


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
    confidence = np.exp(log_probs.max(axis=1).astype(np.float64))
    bins = np.clip(np.ceil(confidence * ECE_BINS).astype(np.int64) - 1, 0, ECE_BINS - 1)
    surplus = per_image_accuracy(log_probs, labels) - confidence
    shares = np.ones(len(labels)) if weights is None else weights
    per_bin = np.bincount(bins, weights=surplus * shares, minlength=ECE_BINS)
    return float(np.abs(per_bin).sum() / shares.sum())


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
