"""Which images a race looks at first, and what they weigh.

The pilot candidates are predicted on all search images. Their average, calibrated, has a loss on
each image, and each pilot changes it a little: its *gain*, which is what decides in a greedy
search. Images that lose much, or whose gains differ much from pilot to pilot, distinguish the
candidates, and their chance to come early is greater. The order is that of bottom-k sampling
(exponential keys over the chances): with the weights 1/(chance to be among them) the first m images
give unbiased sums over all images, for every m.

More is known: the pilots' loss and gains are known on all images, so the weights can be changed
a little until the first images have the same means (the calibration estimator of survey
sampling, with a ridge). Whatever goes along with the pilots' gains is then no longer left to
luck.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Indices, Labels, runs
from relook.numerics.calibration import fit_temperature, mean_log_probs, temper

EASY = 0.25
"""What the chance of an image begins with; its loss and its gains add 1 each on average."""

RIDGE = 0.1
"""What holds the change of the weights back, against features of variance 1."""

CHANGES = (0.1, 10.0)
"""The least and the most that a weight may be multiplied by."""

_VIEWS = 10
"""A pilot's gain is that of one more view added to this many in the average."""

_BLOCK_VALUES = 1 << 22


@dataclass(frozen=True)
class ImageOrder:
    """The search images as a race meets them.

    `order` are places of images. An image is among those whose `keys` are below t with
    probability 1 − exp(−chance · t). `balance` is what each image counts in the objective.
    `features` `[image, feature]` begin with a constant 1; the others have, counted so, mean 0
    and variance 1.
    """

    order: Indices
    keys: FloatArray
    chances: FloatArray
    balance: FloatArray
    features: FloatArray

    def weights(self, count: int) -> FloatArray:
        """Return what each of the first `count` images, not all of them, stands for."""
        first = self.order[:count]
        chance = -np.expm1(-self.chances[first] * self.keys[self.order[count]])
        return np.asarray(self.balance[first] / chance)

    def matched(self, images: Indices, weights: FloatArray) -> FloatArray:
        """Return weights of mean 1 under which the images have about the features of all."""
        weights = weights / weights.sum()
        features = self.features[images]
        share = features * weights[:, None]
        wanted = np.zeros(features.shape[1])
        wanted[0] = 1
        # einsum and not a matrix product: its sums do not depend on the number of threads.
        spread = np.einsum("if,ig->fg", share, features) + RIDGE * np.eye(len(wanted))
        tilt = np.linalg.solve(spread, wanted - share.sum(axis=0))
        weights = weights * np.clip(1 + np.einsum("if,f->i", features, tilt), *CHANGES)
        return np.asarray(weights / weights.mean())


def image_order(
    predicted: NDArray[np.float32], labels: Labels, balance: FloatArray, seed: int
) -> ImageOrder:
    """Return the order of the images that the pilots' predictions `[pilot, image, class]` ask for.

    `balance` `[image]` has a mean of 1.
    """
    loss, gains = _loss_and_gains(predicted, labels, balance)
    informative = _share(balance * gains.std(axis=1)) + _share(balance * loss)
    chances = informative + EASY
    keys = np.random.default_rng([seed, len(labels)]).exponential(size=len(labels)) / chances
    features = _standardised(np.column_stack((loss, gains)), balance)
    features = np.column_stack((np.ones(len(labels)), features))
    return ImageOrder(np.argsort(keys, kind="stable"), keys, chances, balance, features)


def _loss_and_gains(
    predicted: NDArray[np.float32], labels: Labels, balance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the loss of the pilots' average `[image]`, and each one's gain `[image, pilot]`."""
    pilots, images, classes = predicted.shape  # so many images that the predictions stay small
    blocks = runs(images, max(1, _BLOCK_VALUES // (pilots * classes)))
    average = np.concatenate([mean_log_probs(predicted[:, block]) for block in blocks])
    temperature = fit_temperature(average, labels, balance, prior=0.0)
    loss = np.empty(len(labels))
    gains = np.empty((images, pilots))
    for block in blocks:
        own = labels[block, None]
        before = _at(temper(average[block], temperature), own)
        loss[block] = -before
        for pilot, log_probs in enumerate(predicted[:, block]):
            both = np.stack((average[block], log_probs))
            mixed = mean_log_probs(both, counts=np.array([_VIEWS, 1]))
            gains[block, pilot] = _at(temper(mixed, temperature), own) - before
    return loss, gains


def _at(log_probs: FloatArray, labels: Labels) -> FloatArray:
    return np.take_along_axis(log_probs, labels, axis=1)[:, 0]


def _share(values: FloatArray) -> FloatArray:
    """Return values with a mean of 1; nothing but zeros stays zeros."""
    return np.asarray(values / max(float(values.mean()), 1e-12))


def _standardised(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the columns with weighted mean 0 and variance 1; a constant column is 0."""
    share = (weights / weights.sum())[:, None]
    centred = values - (share * values).sum(axis=0)
    deviation = np.sqrt((share * centred**2).sum(axis=0))
    return np.asarray(centred / np.maximum(deviation, 1e-12))
