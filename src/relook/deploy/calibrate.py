"""Fitting a policy anew, on other data or for another model: how views are averaged, and τ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import ArrayLike

from relook.data.base import Dataset
from relook.deploy.weights import LearnedWeights, learn_weights, weighted_policy
from relook.errors import RelookError
from relook.evaluation.cross_validation import cross_validated, prefix_temperatures
from relook.evaluation.unseen import unseen_part
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

Progress = Callable[[int, int], None]


class CalibrationKeywords(TypedDict, total=False):
    """How a policy is fitted anew: `balanced` gives each class the same weight."""

    balanced: bool
    keep_view_temperature: bool
    batch: int | None
    progress: Progress | None


@dataclass(frozen=True)
class WeighedPolicy:
    """A calibrated policy, and the weights that were learned for it, whether used or not.

    They were learned on `images` images; `doubt` says what is not known of these.
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
    """A policy fitted anew, and the scores of all its views on the images: cLL and ECE.

    `before` is as the policy came, `after` with temperatures that other images gave than those
    which they are scored on; None where images are too few for that.
    """

    policy: Policy
    before: Mapping[str, float]
    after: Mapping[str, float] | None


def calibrate_policy(
    predictor: Predictor, dataset: Dataset, policy: Policy, **how: Unpack[CalibrationKeywords]
) -> Policy:
    """Return the policy with a temperature for every prefix, fitted on all images given.

    The view temperature is learned on them too, unless `keep_view_temperature`. They are added to
    the images that the policy was found on.
    """
    return calibrated_policy(predictor, dataset, policy, **how).policy


def calibrated_policy(
    predictor: Predictor, dataset: Dataset, policy: Policy, **how: Unpack[CalibrationKeywords]
) -> CalibratedPolicy:
    """Return what `calibrate_policy` does, with what it is worth."""
    if not len(policy):
        raise RelookError("expected a policy with at least one sub-policy, got an empty one")
    views = [View(sub, index) for index, sub in enumerate(policy)]
    batch, progress = how.get("batch"), how.get("progress")
    log_probs = predict_views(
        predictor, dataset.images, views, seed=policy.seed, batch=batch, progress=progress
    )
    labels, units = dataset.labels, dataset.units
    weights = class_weights(labels) if how.get("balanced") else None
    temperature = (policy.temperatures or (1.0,))[-1]
    old = temper(mean_log_probs(policy.tempered(log_probs)), temperature)
    before = {"cll": log_likelihood(old, labels, weights), "ece": ece(old, labels, weights)}
    if not how.get("keep_view_temperature"):
        policy = _with_view_temperature(policy, log_probs, dataset, weights)
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
    seen = union(policy.seen, set_of(dataset.identities))
    policy = replace(policy, seen=seen, fitted_on=network_mark(predictor))
    fitted = _with_temperatures(policy, log_probs, labels, weights, units)
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
    """Learn weights of a fixed policy's views and return it with them, and with temperatures.

    The views count as before unless images that the weights were not made on say that the
    learned ones are better, or `always`. The view temperature is learned first, unless it is to
    be kept. Images that the policy was found on are left out, with a warning; the others are added
    to those.
    """
    if not policy.is_fixed or not len(policy):
        raise RelookError(
            "expected a fixed policy to weigh the views of, got one that is empty or of fresh "
            "draws: use policy.freeze(seed)"
        )
    unseen = unseen_part(dataset, [replace(policy, halves=())])
    dataset = unseen.dataset
    counts = dict(policy.counts())
    views = [View(sub, index) for index, sub in enumerate(counts)]
    log_probs = predict_views(
        predictor, dataset.images, views, seed=policy.seed, batch=batch, progress=progress
    )
    of_view = dict(zip(counts, log_probs, strict=True))
    if not keep_view_temperature:
        in_order = np.stack([of_view[sub] for sub in policy])
        policy = _with_view_temperature(policy, in_order, dataset)
    learned = learn_weights(
        policy.tempered(log_probs),
        dataset.labels,
        counts=[*counts.values()],
        seed=seed,
        groups=dataset.units,
        view_temperature=policy.view_temperature,
    )
    used = always or learned.better
    chosen = weighted_policy(policy, learned.weights) if used else policy
    entries = (of_view[sub] for sub in chosen)
    seen = union(policy.seen, set_of(dataset.identities))
    chosen = replace(chosen, seen=seen, fitted_on=network_mark(predictor))
    fitted = _with_temperatures(chosen, entries, dataset.labels, groups=dataset.units)
    return WeighedPolicy(fitted, learned, used, len(dataset), unseen.doubt)


def fitted_policy(
    policy: Policy,
    log_probs: LogProbs,
    labels: Labels,
    identities: Identities,
    fitted_on: str | None = None,
) -> Policy:
    """Return the policy with a view temperature and temperatures for predictions of its entries."""
    if len(log_probs) != len(policy) or log_probs.shape[1:2] != labels.shape:
        raise RelookError(
            f"expected a label per image, {log_probs.shape[1]} of them, got shape {labels.shape}"
        )
    found = choose_view_temperature(log_probs, labels)
    seen = union(policy.seen, set_of(identities))
    fitted = replace(policy, view_temperature=found, seen=seen, fitted_on=fitted_on)
    return _with_temperatures(fitted, log_probs, labels)


def other_network_note(model: object, policy: Policy) -> str | None:
    """Say so where a policy's temperatures are known to have been fitted on another network."""
    mark = policy.fitted_on if policy.temperatures is not None else None
    own = None if mark is None else network_mark(model)
    if mark is None or own is None or own == mark or own.split()[0] != mark.split()[0]:
        return None
    return (
        "the policy's temperatures were fitted on another model:  relook calibrate  (TTA.calibrate "
        "in Python) fits them anew"
    )


def _with_view_temperature(
    policy: Policy, log_probs: LogProbs, dataset: Dataset, weights: FloatArray | None = None
) -> Policy:
    """Learn the view temperature from each entry's predictions `[entry, n, class]`."""
    found = choose_view_temperature(log_probs, dataset.labels, weights, dataset.units)
    return replace(policy, view_temperature=found)


def _with_temperatures(
    policy: Policy,
    log_probs: Iterable[LogProbs],
    labels: Labels,
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
    return replace(policy, temperatures=temperatures)
