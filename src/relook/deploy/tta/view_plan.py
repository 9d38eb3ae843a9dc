"""Which views a TTA module runs, how often each counts, and the temperature of their mean."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError, warn
from relook.numerics.calibration import check_temperature
from relook.numerics.conformal import SetRule
from relook.policy import DrawKind, Policy
from relook.policy.file import policy_to_json
from relook.policy.views import apply_subpolicy
from relook.predictions.passes import View, distinct_views
from relook.transforms.full_images import FullImages

TemperatureChoice = Literal["policy"] | float | None

_NOT_CALIBRATED = (
    "the policy is not calibrated: TTA.calibrate(images, labels) fits its temperature;  "
    "temperature=None  leaves it so"
)


@dataclass(frozen=True)
class ViewPlan:
    """The distinct views of a policy in order of first use; `counts[i]` weighs view i.

    `policy` is what runs: frozen, and cut to the budget. `temperature` is 1 where the
    predictions are not calibrated.
    """

    policy: Policy
    views: tuple[View, ...]
    counts: tuple[int, ...]
    temperature: float
    seed: int

    @property
    def is_fixed(self) -> bool:
        """Whether every image gets the same views at every call."""
        return self.policy.is_fixed

    @property
    def sets(self) -> SetRule | None:
        """Which classes are in a prediction set; None where the policy's do not hold here."""
        rule = self.policy.sets
        return None if rule is None or rule.temperature != self.temperature else rule

    def make(self, view: int, images: Tensor | FullImages, indices: NDArray[np.int64]) -> Tensor:
        """Return one view of uint8 images `[n, c, h, w]`; fresh draws belong to the indices.

        Of full-size images, a first step that crops is cut from the large original.
        """
        wanted = self.views[view]
        return apply_subpolicy(wanted.subpolicy, images, indices, self.seed, wanted.index)

    def record(self) -> str:
        """Return what decides the views and their mean as JSON: the same text for the same."""
        content = policy_to_json(self.policy)
        kept = {name: content[name] for name in ("format", "subpolicies")}
        kept |= {"version": 1, "temperature": self.temperature}
        if self.policy.view_temperature != 1:
            kept |= {"view_temperature": self.policy.view_temperature}
        if not self.is_fixed:
            kept |= {"seed": self.seed}
        return json.dumps(kept, sort_keys=True, separators=(",", ":"))


def plan_views(
    policy: Policy | str | Path,
    views: int | None = None,
    temperature: TemperatureChoice = "policy",
    draws: DrawKind = "fixed",
    seed: int | None = None,
) -> ViewPlan:
    """Return the plan for a policy, its file or a preset's name, at a budget of model passes.

    What was fitted on no images, as a preset, runs without calibration, and a warning says so.
    """
    given = policy if isinstance(policy, Policy) else Policy.load(policy)
    if temperature == "policy" and given.temperatures is None and given.seen == b"":
        warn(_NOT_CALIBRATED)
        temperature = None
    if not len(given):
        raise RelookError("expected a policy with at least one sub-policy, got an empty one")
    if draws not in ("fixed", "fresh"):
        raise RelookError(f"expected draws 'fixed' or 'fresh', got {draws!r}")
    seed = given.seed if seed is None else seed
    frozen = draws == "fixed" and not given.is_fixed
    running = given.freeze(seed) if frozen else given
    if views is not None:
        if isinstance(views, bool) or not isinstance(views, int):
            raise RelookError(f"expected views as a whole number, got {views!r}")
        running = running.for_budget(views)
    distinct, order = distinct_views(View(sub, index) for index, sub in enumerate(running))
    counts = np.bincount(order, minlength=len(distinct))
    number = _temperature(running, temperature, frozen)
    return ViewPlan(running, distinct, tuple(int(c) for c in counts), number, seed)


def _temperature(policy: Policy, wanted: TemperatureChoice, frozen: bool) -> float:
    if wanted is None:
        return 1.0
    if wanted == "policy":
        if policy.temperatures is not None:
            return policy.temperatures[-1]
        why = (
            "a policy of fresh draws loses its temperatures when it is frozen: save "
            "policy.freeze(seed) and fit them with  relook calibrate , say draws='fresh',"
            if frozen
            else "the policy has no temperature: fit one with  relook calibrate"
        )
        raise RelookError(f"{why} or say temperature=None for predictions without calibration")
    if isinstance(wanted, bool) or not isinstance(wanted, int | float):
        raise RelookError(f"expected temperature='policy', a number or None, got {wanted!r}")
    return check_temperature(float(wanted))
