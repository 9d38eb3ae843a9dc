"""What each exit predicts: exit k averages the first k distinct views, at its own temperature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import mean_log_probs, temper
from relook.numerics.metrics import per_image_accuracy, per_image_log_likelihood
from relook.policy import Policy


@dataclass(frozen=True)
class ScoredExits:
    """Every exit's calibrated predictions of labelled images.

    `confidence` (the largest probability), `likelihood` (the label's log-probability) and
    `correct` (1 or 0) are `[exit, n]`.
    """

    confidence: FloatArray
    likelihood: FloatArray
    correct: FloatArray

    @classmethod
    def of(
        cls, log_probs: LogProbs, labels: Labels, counts: Indices, temperatures: tuple[float, ...]
    ) -> ScoredExits:
        """Score the views' predictions `[view, n, class]` at each exit."""
        exits = calibrated_exits(log_probs, counts, temperatures)
        return cls(
            confidence_of(exits),
            np.stack([per_image_log_likelihood(one, labels) for one in exits]),
            np.stack([per_image_accuracy(one, labels) for one in exits]),
        )

    def part(self, images: Indices) -> ScoredExits:
        """Return the scores of some of the images."""
        return ScoredExits(*(scores[:, images] for scores in vars(self).values()))


def exit_counts(policy: Policy) -> Indices:
    """Return how often each distinct view counts at each exit, `[exit, view]`.

    Exit k averages what a budget of k views would: the longest prefix that they pay for.
    """
    if not policy.is_fixed:
        raise RelookError(
            "expected a fixed policy for early exit, got one of fresh draws: "
            "use policy.freeze(seed)"
        )
    places = {sub: place for place, (sub, _) in enumerate(policy.counts())}
    counts = np.zeros((len(places), len(places)), dtype=np.int64)
    for row in range(len(places)):
        for sub, count in policy.for_budget(row + 1).counts():
            counts[row, places[sub]] = count
    return counts


def exit_log_probs(log_probs: LogProbs, counts: Indices) -> Iterator[FloatArray]:
    """Yield each exit's averaged prediction `[n, class]` from the views' `[view, n, class]`."""
    if log_probs.ndim != 3 or len(log_probs) != len(counts):
        raise RelookError(
            f"expected predictions of {len(counts)} distinct views [view, image, class], "
            f"got shape {list(log_probs.shape)}"
        )
    for row, own in enumerate(counts):
        yield mean_log_probs(log_probs[: row + 1], counts=own[: row + 1])


def calibrated_exits(
    log_probs: LogProbs, counts: Indices, temperatures: tuple[float, ...]
) -> FloatArray:
    """Return each exit's prediction at its temperature, `[exit, n, class]`."""
    means = exit_log_probs(log_probs, counts)
    return np.stack([temper(mean, t) for mean, t in zip(means, temperatures, strict=True)])


def confidence_of(exits: FloatArray) -> FloatArray:
    """Return the largest probability `[exit, n]` of calibrated exits `[exit, n, class]`."""
    return np.asarray(np.exp(exits.max(axis=-1)))


def first_exits(confidence: FloatArray, thresholds: tuple[float, ...]) -> Indices:
    """Return how many views each image gets `[n]`, from the exits' confidence `[exit, n]`."""
    enough = confidence[:-1] > np.array(thresholds)[:, None]
    last = np.ones((1, confidence.shape[1]), dtype=np.bool_)
    return np.asarray(np.concatenate([enough, last]).argmax(axis=0) + 1)


def take_exits(exits: FloatArray, views: Indices) -> FloatArray:
    """Return what each image's own exit says, `[n, …]` of `[exit, n, …]`."""
    return np.asarray(exits[views - 1, np.arange(len(views))])
