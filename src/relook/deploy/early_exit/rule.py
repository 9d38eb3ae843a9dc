"""Early exit: after each view, a calibrated rule decides which images need no more views.

It is a first step towards the object-dependent policies that the paper names as future work: the
order of the views is the policy's, but their number depends on the image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relook.errors import RelookError
from relook.io.fingerprint import fingerprint
from relook.io.identities import UNKNOWN, checked_set
from relook.io.records import Kind
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import LOG_FLOOR, check_temperature, mean_log_probs, temper
from relook.numerics.metrics import per_image_accuracy, per_image_log_likelihood
from relook.policy import Policy
from relook.policy.file import subpolicy_to_json


@dataclass(frozen=True)
class EarlyExit:
    """A rule for how many views an image gets: exit k is after the k-th distinct view.

    The mean of the views so far, at `temperatures[k − 1]`, is the prediction of exit k. An image
    leaves there if its largest probability is above `thresholds[k − 1]`; the last exit has no
    threshold. The rule was learned for the `target`, on `images` images, which took `mean_views`.
    `policy` is the fingerprint of the views that it belongs to, `seen` the set of images that the
    rule or the policy was found on (`relook.io.identities`).
    """

    thresholds: tuple[float, ...]
    temperatures: tuple[float, ...]
    target: str
    policy: str
    images: int
    mean_views: float
    seen: bytes = field(default=UNKNOWN, repr=False)

    def __post_init__(self) -> None:
        checked_set(self.seen)
        if not self.temperatures or len(self.thresholds) != len(self.temperatures) - 1:
            raise RelookError(
                "expected a temperature for each exit and a threshold for each but the last, got "
                f"{len(self.temperatures)} temperatures and {len(self.thresholds)} thresholds"
            )
        if not all(0 <= threshold <= 1 for threshold in self.thresholds):
            raise RelookError(f"expected thresholds from 0 to 1, got {list(self.thresholds)}")
        for temperature in self.temperatures:
            check_temperature(temperature)

    @property
    def views(self) -> int:
        """The most views that an image gets."""
        return len(self.temperatures)

    def check_policy(self, policy: Policy) -> None:
        """Raise if the rule was learned for other views."""
        if policy_fingerprint(policy) != self.policy:
            raise RelookError(
                "the early exit belongs to another policy or to another budget of views: learn "
                "one for this policy with  relook early-exit"
            )

    def to_json(self) -> dict[str, Any]:
        """Return the rule as JSON-able data."""
        return EARLY_EXIT.to_json(self)

    def save(self, path: str | Path) -> None:
        """Write the rule as JSON, whole or not at all."""
        EARLY_EXIT.write(path, self)

    @classmethod
    def load(cls, path: str | Path) -> EarlyExit:
        """Read a rule; a damaged file raises a FileFormatError."""
        return EARLY_EXIT.read(path)


EARLY_EXIT = Kind(EarlyExit, "relook-early-exit", 2, "a relook early exit", "early-exit")


@dataclass(frozen=True)
class Exited:
    """Images' calibrated log-probabilities `[n, class]` and numbers of views `[n]`."""

    log_probs: FloatArray
    views: Indices


def policy_fingerprint(policy: Policy) -> str:
    """Return a fingerprint of a policy's views, their order and average, without temperatures."""
    average = () if policy.view_temperature == 1 else (policy.view_temperature,)
    return fingerprint([subpolicy_to_json(sub) for sub in policy], *average)


def apply_early_exit(rule: EarlyExit, log_probs: LogProbs, counts: Indices) -> Exited:
    """Apply the rule to the predictions of all views `[view, n, class]` (`Policy.tempered`)."""
    exits = calibrated_exits(log_probs, counts, rule.temperatures)
    views = first_exits(confidence_of(exits), rule.thresholds)
    return Exited(take_exits(exits, views), views)


def run_early_exit(
    rule: EarlyExit, counts: Indices, images: int, predict: Callable[[int, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return scaled log-probabilities float32 `[n, class]`, and the number of views per image.

    `predict(view, places)` returns one view's log-probabilities `[place, class]` of the images that
    need it. The softmax of the result is the calibrated prediction.
    """
    # Views after an exit have no share in it; the logarithm of theirs is never read.
    shares = np.maximum(counts / counts.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
    places = torch.arange(images)
    seen: list[Tensor] = []
    finished: list[tuple[Tensor, Tensor, Tensor]] = []
    for row, temperature in enumerate(rule.temperatures):
        seen.append(predict(row, places))
        weights = seen[0].new_tensor(np.log(shares[row, : row + 1]))
        average = torch.logsumexp(torch.stack(seen) + weights[:, None, None], dim=0)
        scaled = average.clamp(min=LOG_FLOOR) / temperature
        last = row == rule.views - 1
        confidence = (scaled.amax(dim=-1) - scaled.logsumexp(dim=-1)).exp()
        done = (confidence > (0.0 if last else rule.thresholds[row])) | last
        ready = places[done.cpu()]
        finished.append((ready, scaled[done], torch.full_like(ready, row + 1)))
        places, seen = places[~done.cpu()], [one[~done] for one in seen]
        if not len(places):
            break
    order, rows, views = (torch.cat(parts) for parts in zip(*finished, strict=True))
    back = order.argsort()
    return rows[back.to(rows.device)], views[back]


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
    """Return how often each distinct view counts at each exit, `[exit, view]`."""
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
    """Return each image's values at its own exit: `[n, …]` of `[exit, n, …]`."""
    return np.asarray(exits[views - 1, np.arange(len(views))])
