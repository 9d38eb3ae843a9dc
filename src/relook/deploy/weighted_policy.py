"""A policy whose views count as learned: weights as repeats, which every policy may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relook.data.base import Dataset
from relook.deploy.weights import LearnedWeights, learn_weights
from relook.errors import RelookError
from relook.evaluation.cross_validation import prefix_log_probs
from relook.models import Predictor
from relook.numerics.calibration import fit_temperature
from relook.policy import Policy
from relook.predictions.passes import View, predict_views

ENTRIES = 100
"""How many entries a weighted policy has: weights are in hundredths."""


@dataclass(frozen=True)
class WeighedPolicy:
    """A calibrated policy, and the weights that were learned for it, whether used or not."""

    policy: Policy
    learned: LearnedWeights
    used: bool

    def to_json(self) -> dict[str, Any]:
        """Return what was learned as JSON-able data."""
        found = self.learned
        return {
            "used": self.used,
            "better": found.better,
            "weights": list(found.weights),
            "equal": list(found.equal),
            "fit_cll": found.fit_cll,
            "fit_cll_equal": found.fit_cll_equal,
            "cll": found.cll,
            "cll_equal": found.cll_equal,
            "gain": [found.gain.estimate, found.gain.low, found.gain.high],
        }


def weigh_policy(
    predictor: Predictor,
    dataset: Dataset,
    policy: Policy,
    *,
    always: bool = False,
    seed: int = 0,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> WeighedPolicy:
    """Learn weights of a fixed policy's views and return it with them, and with temperatures.

    The views count as before unless images that the weights were not made on say that the
    learned ones are better, or `always`.
    """
    if not policy.is_fixed or not len(policy):
        raise RelookError(
            "expected a fixed policy to weigh the views of, got one that is empty or of fresh "
            "draws: use policy.freeze(seed)"
        )
    counts = policy.counts()
    views = [View(sub, index) for index, (sub, _) in enumerate(counts)]
    log_probs = predict_views(
        predictor, dataset.images, views, seed=policy.seed, batch=batch, progress=progress
    )
    learned = learn_weights(
        log_probs,
        dataset.labels,
        counts=[count for _, count in counts],
        seed=seed,
        groups=dataset.groups,
    )
    used = always or learned.better
    chosen = weighted_policy(policy, learned.weights) if used else policy
    places = {view.subpolicy: place for place, view in enumerate(views)}
    entries = (log_probs[places[sub]] for sub in chosen)
    temperatures = tuple(
        fit_temperature(mean, dataset.labels)
        for mean in prefix_log_probs(entries, range(1, len(chosen) + 1))
    )
    return WeighedPolicy(replace(chosen, temperatures=temperatures), learned, used)


def weighted_policy(policy: Policy, weights: Sequence[float], entries: int = ENTRIES) -> Policy:
    """Return a policy that repeats each distinct view by its weight; it has no temperatures.

    A view's repeats stand together, in the views' order, so that a budget of k views is the
    first k of them with their weights. Views that round to nothing are left out.
    """
    views = [sub for sub, _ in policy.counts()]
    if len(weights) != len(views):
        raise RelookError(
            f"expected a weight for each of {len(views)} distinct views, got {len(weights)}"
        )
    repeated = zip(views, _in_whole_parts(weights, entries), strict=True)
    subpolicies = tuple(sub for sub, count in repeated for _ in range(count))
    return replace(policy, subpolicies=subpolicies, temperatures=None)


def _in_whole_parts(weights: Sequence[float], total: int) -> list[int]:
    """Return whole numbers with this sum, nearest to the weights (by largest remainders)."""
    shares = np.asarray(weights, dtype=np.float64)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise RelookError(f"expected weights ≥ 0, not all 0, got {list(weights)}")
    exact = shares / shares.sum() * total
    parts = np.floor(exact).astype(np.int64)
    last = np.argsort(parts - exact, kind="stable")[: total - int(parts.sum())]
    parts[last] += 1
    return [int(part) for part in parts]
