"""Soft targets: averages of many views, which have less noise than the labels alone.

Which of hundreds of candidates is best is decided by few uncertain images, and a label says of such
an image only what it happened to be. An average of many views says how likely each class is. The
labels decide which average to trust: that is a question with little noise, because many views
are in each. Then picks are scored by a mixture of both, in which labels count for more
the more of them there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.intervals import Groups, mean_and_error
from relook.selection.greedy import floored_log

QUASI_RANDOM, POOL, SEARCH = "quasi-random", "pool", "search"
"""What an average is of: the quasi-random views, the whole pool, or policies found by folds."""

_EVEN_IMAGES = 600  # with this many, labels and soft targets count the same
MOST_CLASSES = 4
"""How many classes an image may have in its targets."""

_LEAST_SHARE = 0.02


@dataclass(frozen=True)
class SoftTargets:
    """An average of many views, calibrated: `targets` `[image, class]`."""

    name: str
    targets: FloatArray
    labels: Labels

    @cached_property
    def log_likelihoods(self) -> FloatArray:
        """What it gives each image's label, `[image]`."""
        rows = np.arange(len(self.labels))
        return np.asarray(np.log(np.maximum(self.targets[rows, self.labels], 1e-35)))


def make_soft_targets(
    name: str, average: FloatArray, labels: Labels, weights: FloatArray
) -> SoftTargets:
    """Return average probabilities `[image, class]` at the temperature that fits the labels."""
    log_q = floored_log(average)
    _, temperature = calibrated_log_likelihood(log_q, labels, weights)
    log_q /= temperature
    log_q -= np.logaddexp.reduce(log_q, axis=1, keepdims=True)
    return SoftTargets(name, np.exp(log_q), labels)


def average_of(
    log_probs: LogProbs, candidates: Sequence[int], images: NDArray[np.bool_] | None = None
) -> FloatArray:
    """Return the mean probability of candidates, `[image, class]`; of some images, if said."""
    total: FloatArray | float = 0.0
    for candidate in candidates:  # one after the other: they may be a map of a large file
        one = log_probs[candidate]
        total = total + np.exp(one if images is None else one[images], dtype=np.float64)
    return np.asarray(total / len(candidates))


def choose_soft_targets(
    found: Sequence[SoftTargets], weights: FloatArray, groups: Groups | None = None
) -> SoftTargets:
    """Return the targets that fit the labels best; later ones only if by a standard error."""
    best = found[0]
    for other in found[1:]:
        gains = other.log_likelihoods - best.log_likelihoods
        gain, error = mean_and_error(gains, weights, groups)
        if gain > error:
            best = other
    return best


@dataclass(frozen=True)
class TargetRows:
    """Images once for each class that they may be: which image, which class, how likely."""

    images: NDArray[np.int64]
    labels: Labels
    shares: FloatArray


def soft_rows(soft: SoftTargets, independent: int) -> TargetRows:
    """Return the images with the classes that the soft targets and the labels give them.

    `independent` is how many groups of images there are.
    """
    trust = independent / (independent + _EVEN_IMAGES)
    targets = (1 - trust) * soft.targets
    targets[np.arange(len(soft.labels)), soft.labels] += trust
    likely = np.argsort(-targets, axis=1, kind="stable")[:, :MOST_CLASSES]
    shares = np.take_along_axis(targets, likely, axis=1)
    shares[:, 1:][shares[:, 1:] < _LEAST_SHARE] = 0
    shares /= shares.sum(axis=1, keepdims=True)
    image, place = np.nonzero(shares)
    return TargetRows(image, likely[image, place], shares[image, place])


def hard_rows(labels: Labels) -> TargetRows:
    """Return each image once, with its label."""
    return TargetRows(np.arange(len(labels)), labels, np.ones(len(labels)))
