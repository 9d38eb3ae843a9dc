"""What a policy is made of: how often each transform is used, and how strongly."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from relook.policy import Policy
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


def transform_statistics(policy: Policy) -> tuple[TransformUse, ...]:
    """Return the use of each transform in the policy's steps, the most used first.

    Repeats count as often as they stand in the policy. The finish is left out: it is the
    same for every sub-policy of a recipe.
    """
    magnitudes: dict[str, list[float]] = defaultdict(list)
    for subpolicy in policy:
        for step in subpolicy.steps:
            magnitudes[step.transform].append(step.magnitude)
    uses = [
        TransformUse(name, len(magnitudes[name]), sum(magnitudes[name]) / len(magnitudes[name]))
        for name in TRANSFORMS
        if name in magnitudes
    ]
    return tuple(sorted(uses, key=lambda use: -use.count))
