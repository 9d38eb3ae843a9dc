"""Running an early exit: a view at a time, on the images that need it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.deploy.early_exit.exits import exit_counts
from relook.deploy.early_exit.rule import EarlyExit
from relook.deploy.tta.view_plan import TemperatureChoice, ViewPlan, plan_views
from relook.errors import RelookError
from relook.numerics.calibration import LOG_FLOOR
from relook.policy import DrawKind, Policy


def plan_with_exits(
    given: EarlyExit | str | Path | None,
    policy: Policy | str | Path,
    views: int | None,
    temperature: TemperatureChoice,
    draws: DrawKind,
    seed: int | None,
) -> tuple[ViewPlan, EarlyExit | None]:
    """Return the plan of the views and the rule, read from its file if need be.

    The temperature of all views is then the last exit's. A rule that does not belong to the
    plan's views raises.
    """
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


def run_early_exit(
    rule: EarlyExit,
    plan: ViewPlan,
    images: int,
    predict: Callable[[int, Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Return scaled log-probabilities float32 `[n, class]`, and how many views each image got.

    `predict(view, places)` gives one view's log-probabilities `[place, class]` of some images.
    Their softmax is the calibrated prediction of the image's exit.
    """
    shares = np.log(_shares(exit_counts(plan.policy)))
    places = torch.arange(images)
    seen: list[Tensor] = []
    finished: list[tuple[Tensor, Tensor, Tensor]] = []
    for row, temperature in enumerate(rule.temperatures):
        seen.append(predict(row, places))
        weights = seen[0].new_tensor(shares[row, : row + 1])
        average = torch.logsumexp(torch.stack(seen) + weights[:, None, None], dim=0)
        scaled = average.clamp(min=LOG_FLOOR) / temperature
        last = row == rule.views - 1
        done = _enough(scaled, 0.0 if last else rule.thresholds[row]) | last
        ready = places[done.cpu()]
        finished.append((ready, scaled[done], torch.full_like(ready, row + 1)))
        places, seen = places[~done.cpu()], [one[~done] for one in seen]
        if not len(places):
            break
    order, rows, views = (torch.cat(parts) for parts in zip(*finished, strict=True))
    back = order.argsort()
    return rows[back.to(rows.device)], views[back]


def _enough(scaled: Tensor, threshold: float) -> Tensor:
    confidence = (scaled.amax(dim=-1) - scaled.logsumexp(dim=-1)).exp()
    return confidence > threshold


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    # A view that an exit has not seen has no share of it; its logarithm is never read.
    shares = counts / counts.sum(axis=1, keepdims=True)
    return np.asarray(np.maximum(shares, np.finfo(np.float64).tiny))
