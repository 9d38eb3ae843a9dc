"""Which transforms policies are made of, group beside group (the paper's last appendix figure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relook.errors import RelookError
from relook.io.records import Kind
from relook.policy import Policy, Step
from relook.transforms import TRANSFORMS

TRIVIAL = ("identity",)
"""What changes nothing: counted, but left out of the figure, as in the paper."""


@dataclass(frozen=True)
class GroupUse:
    """One transform in a group of policies.

    `count` is how often a policy uses it, on average over the group's policies. `magnitude`
    is the mean over all its uses in the group; None if it is never used or has no strength.
    """

    count: float
    magnitude: float | None


@dataclass(frozen=True)
class PolicyGroup:
    """Policies that belong together (models trained one way), means over them.

    `entries` counts sub-policies, `plain` those that are the image as it is; `uses` has the
    transforms that occur.
    """

    name: str
    policies: int
    entries: float
    plain: float
    uses: Mapping[str, GroupUse]

    def use(self, transform: str) -> GroupUse:
        """Return what is known of a transform, which may be that it never occurs."""
        return self.uses.get(transform, GroupUse(0.0, None))

    @property
    def changing(self) -> float:
        """How many steps of a policy change the image."""
        return sum(use.count for name, use in self.uses.items() if name not in TRIVIAL)

    @property
    def magnitude(self) -> float | None:
        """The mean magnitude of all steps that have one."""
        used = [use for use in self.uses.values() if use.magnitude is not None]
        total = sum(use.count for use in used)
        if not total:
            return None
        return sum(use.count * (use.magnitude or 0.0) for use in used) / total


@dataclass(frozen=True)
class PolicyHistogram:
    """Groups of policies side by side."""

    groups: tuple[PolicyGroup, ...]

    @property
    def transforms(self) -> tuple[str, ...]:
        """What occurs anywhere, the most used first; what changes nothing comes last."""
        names = [name for name in TRANSFORMS if any(name in g.uses for g in self.groups)]
        total = {name: sum(group.use(name).count for group in self.groups) for name in names}
        return tuple(sorted(names, key=lambda name: (name in TRIVIAL, -total[name])))

    def to_json(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return HISTOGRAM.to_json(self)

    def save(self, path: str | Path) -> None:
        """Write the counts as JSON, whole or not at all."""
        HISTOGRAM.write(path, self)


HISTOGRAM = Kind(
    PolicyHistogram, "relook-policy-histogram", 1, "a histogram of policies", "statistics"
)


def policy_histogram(groups: Mapping[str, Sequence[Policy]]) -> PolicyHistogram:
    """Count the transforms of each group's policies; repeats count as often as they stand there.

    A step of magnitude 0 that leaves the image alone counts as the identity. A sub-policy's
    finish is left out: it is the same for all sub-policies of a recipe.
    """
    if not groups:
        raise RelookError("expected at least 1 group of policies, got none")
    return PolicyHistogram(tuple(_group(name, own) for name, own in groups.items()))


def load_histogram(path: str | Path) -> PolicyHistogram:
    """Read what `PolicyHistogram.save` wrote."""
    return HISTOGRAM.read(path)


def _counted_as(step: Step) -> str:
    idle = step.magnitude == 0 and TRANSFORMS[step.transform].identity_at_zero
    return "identity" if idle else step.transform


def _group(name: str, policies: Sequence[Policy]) -> PolicyGroup:
    if not policies or not all(len(policy) for policy in policies):
        raise RelookError(f"group {name!r}: expected policies with at least 1 entry each")
    magnitudes: dict[str, list[float]] = {}
    for policy in policies:
        for subpolicy in policy:
            for step in subpolicy.steps:
                magnitudes.setdefault(_counted_as(step), []).append(step.magnitude)
    uses = {
        transform: GroupUse(
            len(magnitudes[transform]) / len(policies),
            sum(magnitudes[transform]) / len(magnitudes[transform]) if row.trend else None,
        )
        for transform, row in TRANSFORMS.items()
        if transform in magnitudes
    }
    return PolicyGroup(
        name,
        len(policies),
        entries=sum(map(len, policies)) / len(policies),
        plain=sum(sub.is_plain for policy in policies for sub in policy) / len(policies),
        uses=uses,
    )
