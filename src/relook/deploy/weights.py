"""Learned weights: a convex mean of the chosen views instead of an equal one.

Equal weights stay the default: learned ones are recommended only if they are better on images
that they were not learned on, by an interval that excludes zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relook.errors import RelookError
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import (
    calibrated_log_likelihood,
    fit_temperature,
    floor_log_probs,
    mean_log_probs,
    temper,
)
from relook.numerics.intervals import Interval, likely_variance, paired_interval
from relook.numerics.metrics import per_image_log_likelihood
from relook.numerics.splits import stratified_split
from relook.policy import Policy

ENTRIES = 100
"""The number of entries of a weighted policy: weights are in hundredths."""

_ROUNDS = 2000
_LEAST_GAIN = 1e-9  # nats per round
_STEP_GROWTH = 1.2
_LEAST_STEP = 1e-4  # shorter steps hardly change the weights


@dataclass(frozen=True)
class LearnedWeights:
    """Weights of views, compared with equal ones.

    `weights` `[view]` and `temperature` are fitted on all images; `equal` counts each view as
    often as the policy has it. `cll`, `cll_equal` and their difference `gain` are cross-validated.
    `fit_cll` and `fit_cll_equal` are on the images of the fit, where learned weights cannot lose:
    `fit_cll` minus `cll` shows how much they overfit.
    """

    weights: tuple[float, ...]
    equal: tuple[float, ...]
    temperature: float
    fit_cll: float
    fit_cll_equal: float
    cll: float
    cll_equal: float
    gain: Interval

    @property
    def better(self) -> bool:
        """Whether the learned weights are shown to be better on held-out images."""
        return self.gain.low > 0

    def to_json(self) -> dict[str, Any]:
        """Return what was learned as JSON-able data."""
        content = {name: value for name, value in vars(self).items() if name != "temperature"}
        gain = [self.gain.estimate, self.gain.low, self.gain.high]
        return {"better": self.better, **content, "gain": gain}


def learn_weights(
    log_probs: LogProbs,
    labels: Labels,
    *,
    counts: ArrayLike | None = None,
    seed: int = 0,
    groups: ArrayLike | None = None,
    view_temperature: float = 1.0,
) -> LearnedWeights:
    """Learn convex weights of views from their predictions `[view, n, class]`.

    Weights and a temperature are fitted on half of the images (whole `groups`) and scored on the
    other half, and vice versa; the weights returned are fitted on all images. `counts` are the
    "equal" weights if the policy repeats views. The predictions are at the `view_temperature`
    (`Policy.tempered`), of images that the selection has not seen.
    """
    if log_probs.ndim != 3 or labels.shape != log_probs.shape[1:2] or len(labels) < 4:
        raise RelookError(
            "expected log-probabilities [view, image, class] and labels [image] of at least 4 "
            f"images, got {list(log_probs.shape)} and {list(labels.shape)}"
        )
    equal = _shares(log_probs, counts)

    def fit(shares: FloatArray, part: Indices) -> tuple[FloatArray, float]:
        """Return the weighted mean `[n, class]`, and its temperature fitted on a part."""
        average = mean_log_probs(log_probs, counts=shares)
        own = None if groups is None else np.asarray(groups)[part]
        return average, fit_temperature(
            average[part], labels[part], groups=own, view_temperature=view_temperature
        )

    first, second = stratified_split(labels, 0.5, seed, groups)
    gains, learned = np.empty(len(labels)), np.empty(len(labels))
    likely = []
    for train, test in ((first, second), (second, first)):
        found, _, _ = fit_weights(log_probs[:, train], labels[train], equal)
        after, before = (
            temper(average[test], temperature)
            for average, temperature in (fit(shares, train) for shares in (found, equal))
        )
        own, usual = (per_image_log_likelihood(one, labels[test]) for one in (after, before))
        learned[test], gains[test] = own, own - usual
        likely.append(likely_variance(after, before))
    weights, _, cll = fit_weights(log_probs, labels, equal)
    return LearnedWeights(
        weights=tuple(weights.tolist()),
        equal=tuple(equal.tolist()),
        temperature=fit(weights, np.arange(len(labels)))[1],
        fit_cll=cll,
        fit_cll_equal=_calibrated(log_probs, labels, equal)[0],
        cll=float(learned.mean()),
        cll_equal=float((learned - gains).mean()),
        gain=paired_interval(gains, groups=groups, likely=float(np.mean(likely))),
    )


def weighted_policy(policy: Policy, weights: Sequence[float]) -> Policy:
    """Return a policy without temperatures that repeats each distinct view by its weight.

    Repeats of a view are adjacent, in the views' order, so that a budget of k views is the first k
    of them with their weights. Views whose weight rounds to 0 are left out.
    """
    views = [sub for sub, _ in policy.counts()]
    if len(weights) != len(views):
        raise RelookError(
            f"expected a weight for each of {len(views)} distinct views, got {len(weights)}"
        )
    repeated = zip(views, _in_whole_parts(weights, ENTRIES), strict=True)
    subpolicies = tuple(sub for sub, count in repeated for _ in range(count))
    return replace(policy, subpolicies=subpolicies, temperatures=None)


def fit_weights(
    log_probs: LogProbs, labels: Labels, start: ArrayLike | None = None
) -> tuple[FloatArray, float, float]:
    """Return the weights `[view]` with the highest cLL, their temperature, and that cLL.

    Projected gradient on the simplex with momentum, whose step halves until the cLL rises,
    alternates with the temperature's own fit.
    """
    weights = last = _shares(log_probs, start)
    probs = np.exp(floor_log_probs(log_probs))
    cll, temperature = _calibrated(log_probs, labels, weights)
    step, age = 1.0, 0
    for _ in range(_ROUNDS):
        ahead = project_to_simplex(weights + age / (age + 3) * (weights - last))
        slope = _gradient(probs, labels, ahead, temperature)
        moved = project_to_simplex(ahead + step * slope)
        tried, at = _calibrated(log_probs, labels, moved, temperature)
        if tried > cll:
            gain, age, step = tried - cll, age + 1, step * _STEP_GROWTH
            last, weights, cll, temperature = weights, moved, tried, at
            if gain >= _LEAST_GAIN:
                continue
        if age:
            age = 0  # restart without momentum
        elif step < _LEAST_STEP:
            break
        else:
            step /= 2
    return weights, temperature, cll


def project_to_simplex(values: FloatArray) -> FloatArray:
    """Return the nearest weights ≥ 0 with sum 1: subtract one number, cut off at 0."""
    falling = np.sort(values)[::-1]
    surplus = (np.cumsum(falling) - 1) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > surplus)[-1])
    return np.asarray(np.maximum(values - surplus[last], 0.0))


def _gradient(
    probs: FloatArray, labels: Labels, weights: FloatArray, temperature: float
) -> FloatArray:
    """Return d cLL / d weight `[view]` at a fixed temperature."""
    average = np.tensordot(weights, probs, axes=1)
    logs = floor_log_probs(np.log(average))
    calibrated = np.exp(temper(logs, temperature))
    per_class = -calibrated
    per_class[np.arange(len(labels)), labels] += 1
    per_class /= temperature * average * len(labels)
    return np.asarray(np.einsum("vnc,nc->v", probs, per_class))


def _calibrated(
    log_probs: LogProbs, labels: Labels, weights: FloatArray, start: float = 1.0
) -> tuple[float, float]:
    return calibrated_log_likelihood(mean_log_probs(log_probs, counts=weights), labels, start=start)


def _shares(log_probs: LogProbs, counts: ArrayLike | None) -> FloatArray:
    given = np.ones(len(log_probs)) if counts is None else np.asarray(counts, dtype=np.float64)
    if given.shape != (len(log_probs),) or not (given >= 0).all() or not given.sum() > 0:
        raise RelookError(
            f"expected {len(log_probs)} counts ≥ 0, one per view, got {np.asarray(counts).tolist()}"
        )
    return np.asarray(given / given.sum())


def _in_whole_parts(weights: Sequence[float], total: int) -> list[int]:
    """Round weights to whole numbers with this sum, by largest remainders."""
    shares = np.asarray(weights, dtype=np.float64)
    if not (np.isfinite(shares).all() and (shares >= 0).all() and shares.sum() > 0):
        raise RelookError(f"expected weights ≥ 0, not all 0, got {list(weights)}")
    exact = shares / shares.sum() * total
    parts = np.floor(exact).astype(np.int64)
    parts[np.argsort(parts - exact, kind="stable")[: total - int(parts.sum())]] += 1
    return [int(part) for part in parts]
