"""The order in which a race takes images, and their weights.

The pilot candidates are predicted on all search images. Their average, calibrated, has a loss on
each image, and each pilot changes it a little: its *gain*, which decides in a greedy search. Images
with a large loss, or with gains that vary much between pilots, distinguish the candidates best and
have a greater chance to come early. The order is that of bottom-k sampling (exponential keys
divided by the chances): weighted by 1/(the probability to be among them), the first m images give
unbiased sums over all images, for every m.

As the pilots' loss and gains are known on all images, the weights are also adjusted a little until
the first images have the same means (the calibration estimator of survey sampling, with a ridge).
Whatever correlates with the pilots' gains is then no longer left to chance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray, Indices, Labels, runs
from relook.numerics.calibration import fit_temperature, mean_log_probs, temper

EASY = 0.25
"""The chance of the easiest image; loss and gains each add 1 on average."""

RIDGE = 0.1
"""The penalty on adjusting the weights, against features of variance 1."""

CHANGES = (0.1, 10.0)
"""The least and the greatest factor by which a weight may be adjusted."""

_VIEWS = 10
"""A pilot's gain is that of one more view added to this many in the average."""

_BLOCK_VALUES = 1 << 22


@dataclass(frozen=True)
class ImageOrder:
    """The search images in the order of a race.

    `order` lists places of images. An image's key is below t with probability
    1 − exp(−chance · t). `balance` is each image's weight in the objective. `features`
    `[image, feature]` begin with a constant 1; the others have weighted mean 0 and variance 1.
    """

    order: Indices
    keys: FloatArray
    chances: FloatArray
    balance: FloatArray
    features: FloatArray

    def weights(self, count: int) -> FloatArray:
        """Return weights of the first `count` images, fewer than all, that stand for all images."""
        first = self.order[:count]
        chance = -np.expm1(-self.chances[first] * self.keys[self.order[count]])
        return np.asarray(self.balance[first] / chance)

    def matched(self, images: Indices, weights: FloatArray) -> FloatArray:
        """Adjust weights, to mean 1, so that the images have about the mean features of all."""
        weights = weights / weights.sum()
        features = self.features[images]
        share = features * weights[:, None]
        wanted = np.zeros(features.shape[1])
        wanted[0] = 1
        # einsum, as the sums of a matrix product depend on the number of threads.
        spread = np.einsum("if,ig->fg", share, features) + RIDGE * np.eye(len(wanted))
        tilt = np.linalg.solve(spread, wanted - share.sum(axis=0))
        weights = weights * np.clip(1 + np.einsum("if,f->i", features, tilt), *CHANGES)
        return np.asarray(weights / weights.mean())


def image_order(
    predicted: NDArray[np.float32], labels: Labels, balance: FloatArray, seed: int
) -> ImageOrder:
    """Return the order of the images by the pilots' predictions `[pilot, image, class]`.

    `balance` `[image]` has a mean of 1.
    """
    loss, gains = _loss_and_gains(predicted, labels, balance)
    chances = _with_mean_one(balance * gains.std(axis=1)) + _with_mean_one(balance * loss) + EASY
    keys = np.random.default_rng([seed, len(labels)]).exponential(size=len(labels)) / chances
    features = _standardised(np.column_stack((loss, gains)), balance)
    features = np.column_stack((np.ones(len(labels)), features))
    return ImageOrder(np.argsort(keys, kind="stable"), keys, chances, balance, features)


def _loss_and_gains(
    predicted: NDArray[np.float32], labels: Labels, balance: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the loss of the pilots' average `[image]`, and each one's gain `[image, pilot]`."""
    pilots, images, classes = predicted.shape
    # Blocks of images, so that the float64 copies stay small.
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


def _with_mean_one(values: FloatArray) -> FloatArray:
    """Scale values to a mean of 1; zeros stay zeros."""
    return np.asarray(values / max(float(values.mean()), 1e-12))


def _standardised(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the columns with weighted mean 0 and variance 1; a constant column is 0."""
    share = (weights / weights.sum())[:, None]
    centred = values - (share * values).sum(axis=0)
    deviation = np.sqrt((share * centred**2).sum(axis=0))
    return np.asarray(centred / np.maximum(deviation, 1e-12))
