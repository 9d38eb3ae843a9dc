"""Fitting a policy's temperatures anew: for other data, another model, a frozen policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relook.data.base import Dataset
from relook.errors import RelookError
from relook.evaluation.cross_validation import prefix_log_probs
from relook.models import Predictor
from relook.numerics.calibration import fit_temperature
from relook.policy import Policy
from relook.predictions.passes import View, predict_views
from relook.selection.objectives import class_weights


def calibrate_policy(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    *,
    balanced: bool = False,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Policy:
    """Return the policy with a temperature for every prefix, fitted on all images given."""
    if not len(policy):
        raise RelookError("expected a policy with at least one sub-policy, got an empty one")
    log_probs = predict_views(
        predictor,
        dataset.images,
        [View(sub, index) for index, sub in enumerate(policy)],
        seed=policy.seed,
        batch=batch,
        progress=progress,
    )
    weights = class_weights(dataset.labels) if balanced else None
    lengths = range(1, len(policy) + 1)
    temperatures = tuple(
        fit_temperature(mean, dataset.labels, weights)
        for mean in prefix_log_probs(log_probs, lengths)
    )
    return replace(policy, temperatures=temperatures)
