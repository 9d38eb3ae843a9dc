"""The plan of a TTA module: its distinct views, how often each counts, and their average."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.deploy.early_exit.rule import EarlyExit
from relook.errors import RelookError, warn
from relook.models import Predictor
from relook.numerics.arrays import FloatArray, LogProbs
from relook.numerics.calibration import check_temperature, mean_log_probs, temper
from relook.numerics.conformal import SetRule
from relook.numerics.metrics import entropy
from relook.policy import DrawKind, Policy, SubPolicy
from relook.policy.file import policy_to_json, subpolicy_from_json, subpolicy_to_json
from relook.policy.views import apply_subpolicy, fixed_steps, naming_steps
from relook.predictions.passes import Images, View, distinct_views, predict_views
from relook.transforms.apply import apply_kernels
from relook.transforms.full_images import FullImages

Output = Literal["probabilities", "log_probs", "logits"]
TemperatureChoice = Literal["policy"] | float | None

_NOT_CALIBRATED = (
    "the policy is not calibrated: TTA.calibrate(images, labels) fits its temperature;  "
    "temperature=None  leaves it so"
)


@dataclass(frozen=True)
class Uncertainty:
    """Entropies in nats, float64 `[n]`.

    `entropy` is that of the calibrated prediction. Before calibration, with the views at the
    policy's view temperature, `predictive_entropy` is the entropy of their mean and
    `expected_entropy` the mean of their entropies.
    """

    entropy: FloatArray
    predictive_entropy: FloatArray
    expected_entropy: FloatArray

    @property
    def mutual_information(self) -> FloatArray:
        """Predictive minus expected entropy, at least 0: how much the views disagree."""
        return np.maximum(self.predictive_entropy - self.expected_entropy, 0.0)


@dataclass(frozen=True)
class ViewPlan:
    """The distinct views of a policy in order of first use; `counts[i]` weighs view i.

    `policy` is frozen and cut to the budget. `temperature` is 1 if predictions are not calibrated.
    """

    policy: Policy
    views: tuple[View, ...]
    counts: tuple[int, ...]
    temperature: float
    seed: int

    @property
    def is_fixed(self) -> bool:
        """Whether every image always gets the same views."""
        return self.policy.is_fixed

    @property
    def sets(self) -> SetRule | None:
        """The rule for prediction sets; None without one, or if it has another temperature."""
        rule = self.policy.sets
        return None if rule is None or rule.temperature != self.temperature else rule

    def make(self, view: int, images: Tensor | FullImages, indices: NDArray[np.int64]) -> Tensor:
        """Return one view of uint8 images `[n, c, h, w]`; fresh draws belong to the indices."""
        wanted = self.views[view]
        return apply_subpolicy(wanted.subpolicy, images, indices, self.seed, wanted.index)

    def predict(
        self, predictor: Predictor, images: Images, **how: Any
    ) -> tuple[FloatArray, FloatArray]:
        """Return the views' mean and the plain image's log-probabilities, `[n, class]` each.

        `how` is as for `predict_views`.
        """
        views = [*self.views, View(SubPolicy(), 0)]
        log_probs = predict_views(predictor, images, views, seed=self.seed, **how)
        return self.average(log_probs[:-1]), log_probs[-1].astype(np.float64)

    def average(self, log_probs: LogProbs) -> FloatArray:
        """Return the mean `[n, class]` of the model's log-probabilities `[view, n, class]`."""
        return self.mean(self.policy.tempered(log_probs))

    def mean(self, log_probs: LogProbs) -> FloatArray:
        """Return the mean `[n, class]` of log-probabilities at the view temperature."""
        return mean_log_probs(log_probs, counts=np.array(self.counts))

    def uncertainty(self, log_probs: LogProbs) -> Uncertainty:
        """Return the entropies of log-probabilities `[view, n, class]` at the view temperature."""
        average = self.mean(log_probs)
        shares = np.array(self.counts, dtype=np.float64) / sum(self.counts)
        return Uncertainty(
            entropy=entropy(temper(average, self.temperature)),
            predictive_entropy=entropy(average),
            expected_entropy=np.asarray(np.tensordot(shares, entropy(log_probs), axes=1)),
        )

    def record(self) -> str:
        """Return all that the views and their mean depend on, as JSON; equal plans, equal text."""
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

    A policy fitted on no images, such as a preset, runs without calibration, with a warning.
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
    number = _chosen_temperature(running, temperature, frozen)
    return ViewPlan(running, distinct, tuple(counts.tolist()), number, seed)


def _chosen_temperature(policy: Policy, wanted: TemperatureChoice, frozen: bool) -> float:
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


def plan_with_exits(
    given: EarlyExit | str | Path | None,
    policy: Policy | str | Path,
    views: int | None,
    temperature: TemperatureChoice,
    draws: DrawKind,
    seed: int | None,
) -> tuple[ViewPlan, EarlyExit | None]:
    """Return the plan of the views and the early-exit rule, which brings its temperatures."""
    if given is None:
        return plan_views(policy, views, temperature, draws, seed), None
    rule = given if isinstance(given, EarlyExit) else EarlyExit.load(given)
    if temperature != "policy":
        raise RelookError(
            "each exit has a temperature of its own: leave temperature or early_exit out"
        )
    plan = plan_views(policy, views, rule.temperatures[-1], draws, seed)
    if not plan.is_fixed:
        raise RelookError("expected a fixed policy for early exit: leave draws='fresh' out")
    rule.check_policy(plan.policy)
    return plan, rule


# Fixed views inside a graph: plain operations for torch.export, whose graphs run without relook;
# one operator for torch.compile, as the kernels behind it are compiled already.


def traced_view(subpolicy: SubPolicy, images: Tensor) -> Tensor:
    """Return a fixed view of uint8 images `[n, c, h, w]`, made of torch's own operations."""
    with naming_steps(subpolicy):
        return apply_kernels(images, fixed_steps(subpolicy))


def subpolicy_text(subpolicy: SubPolicy) -> str:
    """Return a fixed sub-policy as the operator takes it."""
    return json.dumps(subpolicy_to_json(subpolicy))


@torch.library.custom_op("relook::fixed_view", mutates_args=())
def fixed_view(images: Tensor, subpolicy: str) -> Tensor:
    """Return one fixed view of uint8 images `[n, c, h, w]`."""
    return apply_subpolicy(_parsed(subpolicy), images, np.zeros(len(images), np.int64), 0, 0)


@fixed_view.register_fake
def _(images: Tensor, subpolicy: str) -> Tensor:
    return torch.empty_like(images, memory_format=torch.contiguous_format)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> SubPolicy:
    return subpolicy_from_json(json.loads(text))
