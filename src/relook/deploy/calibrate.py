"""Fits a policy's view temperature, temperatures and weights again, for other data or models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.deploy.weights import LearnedWeights, learn_weights, weighted_policy
from relook.errors import RelookError
from relook.evaluation.cross_validation import cross_validated, prefix_temperatures
from relook.evaluation.unseen import unseen_part
from relook.foundation.progress import Progress
from relook.io.identities import Identities, set_of, union
from relook.models import Predictor
from relook.models.describe import network_mark
from relook.numerics.arrays import FloatArray, Labels, LogProbs
from relook.numerics.calibration import mean_log_probs, temper
from relook.numerics.metrics import ece, log_likelihood
from relook.numerics.view_temperature import choose_view_temperature
from relook.policy import Policy
from relook.predictions.passes import View, predict_views
from relook.selection.objectives import class_weights


@dataclass(frozen=True)
class WeighedPolicy:
    """A calibrated policy, and the weights that were learned for it, whether used or not.

    `images` is how many images they were learned on; `doubt` says if the search may have seen them.
    """

    policy: Policy
    learned: LearnedWeights
    used: bool
    images: int
    doubt: str

    def to_json(self) -> dict[str, Any]:
        """Return what was learned as JSON-able data."""
        about = {"used": self.used, "images": self.images, "doubt": self.doubt}
        return {**about, **self.learned.to_json()}


@dataclass(frozen=True)
class CalibratedPolicy:
    """A policy fitted again, and the scores of all its views on the images: cLL and ECE.

    `before` is with the old temperatures, `after` with new ones, cross-validated; None if there are
    too few images for that.
    """

    policy: Policy
    before: Mapping[str, float]
    after: Mapping[str, float] | None


def calibrated_policy(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    *,
    balanced: bool = False,
    keep_view_temperature: bool = False,
    batch: int | None = None,
    progress: Progress | None = None,
) -> CalibratedPolicy:
    """Return the policy with a temperature for every prefix, fitted on all images given.

    The view temperature is fitted too, unless it is to be kept. The images are added to those that
    the policy was found on. `balanced` gives each class the same weight.
    """
    if not len(policy):
        raise RelookError("expected a policy with at least one sub-policy, got an empty one")
    views = [View(sub, index) for index, sub in enumerate(policy)]
    log_probs = predict_views(
        predictor, dataset.images, views, seed=policy.seed, batch=batch, progress=progress
    )
    labels, units = dataset.labels, dataset.units
    weights = class_weights(labels) if balanced else None
    temperature = (policy.temperatures or (1.0,))[-1]
    old = temper(mean_log_probs(policy.tempered(log_probs)), temperature)
    before = {"cll": log_likelihood(old, labels, weights), "ece": ece(old, labels, weights)}
    if not keep_view_temperature:
        kappa = choose_view_temperature(log_probs, labels, weights, units)
        policy = replace(policy, view_temperature=kappa)
    after = None
    with suppress(RelookError):  # too few images, or groups, to be split
        found = cross_validated(
            mean_log_probs(policy.tempered(log_probs)),
            labels,
            seed=0,
            groups=units,
            weights=weights,
            view_temperature=policy.view_temperature,
        ).metrics
        after = {"cll": found["cll"], "ece": found["ece_calibrated"]}
    mark = network_mark(predictor)
    fitted = _with_temperatures(policy, log_probs, labels, dataset.identities, mark, weights, units)
    return CalibratedPolicy(fitted, before, after)


def weigh_policy(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    *,
    always: bool = False,
    keep_view_temperature: bool = False,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
) -> WeighedPolicy:
    """Learn weights for a fixed policy's views, and return it with weights and temperatures.

    The learned weights are used if they prove better on images that they were not learned on, or
    with `always`; otherwise the views count as before. The view temperature is fitted first, unless
    it is to be kept. Images that the policy was found on are left out, with a warning; the others
    are added to them.
    """
    if not policy.is_fixed or not len(policy):
        raise RelookError(
            "expected a fixed policy to weigh the views of, got one that is empty or of fresh "
            "draws: use policy.freeze(seed)"
        )
    unseen = unseen_part(dataset, [replace(policy, halves=())])
    dataset = unseen.dataset
    labels, units = dataset.labels, dataset.units
    counts = dict(policy.counts())
    views = [View(sub, index) for index, sub in enumerate(counts)]
    log_probs = predict_views(
        predictor, dataset.images, views, seed=policy.seed, batch=batch, progress=progress
    )
    of_view = dict(zip(counts, log_probs, strict=True))
    if not keep_view_temperature:
        in_order = np.stack([of_view[sub] for sub in policy])
        kappa = choose_view_temperature(in_order, labels, None, units)
        policy = replace(policy, view_temperature=kappa)
    learned = learn_weights(
        policy.tempered(log_probs),
        labels,
        counts=[*counts.values()],
        seed=seed,
        groups=units,
        view_temperature=policy.view_temperature,
    )
    used = always or learned.better
    chosen = weighted_policy(policy, learned.weights) if used else policy
    entries, mark = (of_view[sub] for sub in chosen), network_mark(predictor)
    fitted = _with_temperatures(chosen, entries, labels, dataset.identities, mark, groups=units)
    return WeighedPolicy(fitted, learned, used, len(dataset), unseen.doubt)


def fitted_policy(
    policy: Policy, log_probs: LogProbs, labels: Labels, identities: Identities, mark: str | None
) -> Policy:
    """Return the policy, fitted on its entries' predictions `[entry, n, class]`."""
    if len(log_probs) != len(policy) or log_probs.shape[1:2] != labels.shape:
        raise RelookError(
            f"expected a label per image, {log_probs.shape[1]} of them, got shape {labels.shape}"
        )
    policy = replace(policy, view_temperature=choose_view_temperature(log_probs, labels))
    return _with_temperatures(policy, log_probs, labels, identities, mark)


def _with_temperatures(
    policy: Policy,
    log_probs: Iterable[LogProbs],
    labels: Labels,
    identities: Identities,
    mark: str | None,
    weights: FloatArray | None = None,
    groups: ArrayLike | None = None,
) -> Policy:
    """Fit a temperature for every prefix, from each entry's predictions `[n, class]`."""
    temperatures = prefix_temperatures(
        map(policy.tempered, log_probs),
        len(policy),
        labels,
        weights,
        groups,
        policy.view_temperature,
    )
    seen = union(policy.seen, set_of(identities))
    return replace(policy, temperatures=temperatures, seen=seen, fitted_on=mark)


def other_network_note(model: object, policy: Policy) -> str | None:
    """Return a note if a policy's temperatures were certainly fitted on another network."""
    mark = policy.fitted_on if policy.temperatures is not None else None
    own = None if mark is None else network_mark(model)
    if mark is None or own is None or own == mark or own.split()[0] != mark.split()[0]:
        return None
    return (
        "the policy's temperatures were fitted on another model:  relook calibrate  (TTA.calibrate "
        "in Python) fits them again"
    )
