"""Early exit: after each view, a calibrated rule decides which images need no more of them.

The paper names object-dependent policies as what comes next; this is a first step: the order
of the views is the policy's, how many of them an image gets is its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relook.deploy.early_exit.exits import (
    calibrated_exits,
    confidence_of,
    first_exits,
    take_exits,
)
from relook.errors import RelookError
from relook.io.fingerprint import fingerprint
from relook.io.identities import UNKNOWN, checked_set
from relook.io.records import Kind
from relook.numerics.arrays import FloatArray, Indices, LogProbs
from relook.numerics.calibration import check_temperature
from relook.policy import Policy
from relook.policy.file import subpolicy_to_json


@dataclass(frozen=True)
class EarlyExit:
    """When an image has had enough views: exit k is after the k-th distinct view.

    The mean of the views so far, at `temperatures[k − 1]`, is the prediction of exit k; its
    largest probability above `thresholds[k − 1]` ends the image. The last exit ends all, so it
    has no threshold; a threshold of 1 lets every image go on. `target` is what the rule was
    learned for, on `images` images, where it took `mean_views`; `policy` is the fingerprint of
    the views that it belongs to. `seen` is the set of images that the rule or the policy was
    found on (`relook.io.identities`).
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
        """How many views an image may get at most."""
        return len(self.temperatures)

    def check_policy(self, policy: Policy) -> None:
        """Raise where the rule was learned for other views."""
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
        """Read a rule; a damaged file raises a FileFormatError that says what is wrong."""
        return EARLY_EXIT.read(path)


EARLY_EXIT = Kind(EarlyExit, "relook-early-exit", 2, "a relook early exit", "early-exit", oldest=1)


@dataclass(frozen=True)
class Exited:
    """What images got: calibrated log-probabilities `[n, class]` and views `[n]`."""

    log_probs: FloatArray
    views: Indices


def policy_fingerprint(policy: Policy) -> str:
    """Return what identifies a policy's views, their order and average, without temperatures."""
    average = () if policy.view_temperature == 1 else (policy.view_temperature,)
    return fingerprint([subpolicy_to_json(sub) for sub in policy], *average)


def apply_early_exit(rule: EarlyExit, log_probs: LogProbs, counts: Indices) -> Exited:
    """Return what the rule makes of predictions of all views `[view, n, class]`.

    They are as they are averaged: see `Policy.tempered`.
    """
    exits = calibrated_exits(log_probs, counts, rule.temperatures)
    views = first_exits(confidence_of(exits), rule.thresholds)
    return Exited(take_exits(exits, views), views)
