"""How often a policy uses each transform, and how strongly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relook.policy import Policy, Step
from relook.policy.words import IDENTITY as IDENTITY
from relook.policy.words import is_idle
from relook.transforms import TRANSFORMS


@dataclass(frozen=True)
class TransformUse:
    """How often a policy uses a transform, and its mean magnitude over these uses."""

    transform: str
    count: int
    mean_magnitude: float

    @property
    def has_magnitude(self) -> bool:
        """Whether the transform has a strength at all."""
        return TRANSFORMS[self.transform].trend != 0

    @property
    def magnitude_text(self) -> str:
        """The mean magnitude with one digit, or a dash."""
        return f"{self.mean_magnitude:.1f}" if self.has_magnitude else "–"


def counted_as(step: Step) -> str:
    """Return the transform that a step counts as.

    A step of magnitude 0 counts as the identity if its transform then changes nothing. Otherwise
    (autocontrast, a flip) it counts as its own transform.
    """
    return IDENTITY if is_idle(step) else step.transform


def magnitudes_of(policies: Iterable[Policy]) -> dict[str, list[float]]:
    """Return the magnitudes of each transform's uses in the policies' steps.

    Repeated sub-policies count repeatedly. The finish is left out, as it is the same for every
    sub-policy of a recipe.
    """
    magnitudes: dict[str, list[float]] = {}
    for policy in policies:
        for step in (step for subpolicy in policy for step in subpolicy.steps):
            magnitudes.setdefault(counted_as(step), []).append(step.magnitude)
    return magnitudes


def transform_statistics(policy: Policy) -> tuple[TransformUse, ...]:
    """Return the use of each transform in the policy's steps, the most used first."""
    magnitudes = magnitudes_of([policy])
    uses = [
        TransformUse(name, len(magnitudes[name]), sum(magnitudes[name]) / len(magnitudes[name]))
        for name in TRANSFORMS
        if name in magnitudes
    ]
    return tuple(sorted(uses, key=lambda use: -use.count))
