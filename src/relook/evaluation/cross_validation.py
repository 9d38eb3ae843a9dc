"""Test-time cross-validation (the paper's section 4): calibrate on some images, score others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from relook.errors import RelookError, unknown_name
from relook.evaluation.comparison import ReliabilityBin
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import (
    PRIOR,
    fit_temperature,
    prefix_log_probs,
    temper,
    weighted_mean,
)
from relook.numerics.intervals import (
    Interval,
    independent_images,
    likely_variance,
    paired_interval,
    share_interval,
)
from relook.numerics.metrics import (
    ECE_BINS,
    Selective,
    SelectiveRisks,
    adaptive_ece,
    brier,
    classwise_ece,
    confidences,
    ece,
    log_likelihood,
    per_image_accuracy,
    per_image_log_likelihood,
    selective,
)
from relook.numerics.splits import folds
from relook.numerics.splits import halvings as halve

PROTOCOLS = ("standard", "paper")
"""How temperatures are fitted: shrunk, and on ten folds of few images; or as in the paper."""

FEW = 1000
"""With fewer independent images than this, halves of them are too small to calibrate on."""

MANY = 5000
"""From this many independent images on, nothing is shrunk: both protocols are the same."""

FEWEST_SELECTIVE = 100
"""With fewer independent images, leaving out the least sure ones is not evaluated."""

_FOLDS = 10
_SAMPLE = 256  # images whose predictions are kept: enough to estimate the expected variance

Pair = tuple[Indices, Indices]
"""The images to calibrate on, and those to score."""

Averages = Callable[[Indices], tuple[LogProbs, float]]
"""For the images to calibrate on: log-probabilities `[n, c]` of all, and their view temperature."""


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, each the mean over all parts, and the values of single images.

    `per_image["cll"]` `[n]` is an image's calibrated log-likelihood at a temperature fitted on
    others, averaged over the halvings; `per_image["accuracy"]` `[n]` is 1 if it is right.
    `samples["cll"]` `[m, c]` has the calibrated log-probabilities of some images, always the same.
    """

    metrics: Mapping[str, float]
    per_image: Mapping[str, FloatArray]
    samples: Mapping[str, NDArray[np.float32]]

    def named(self, **others: Evaluation) -> Evaluation:
        """Add the cLL and accuracy of other averages of the same views, as `cll_NAME`."""
        metrics, values, samples = dict(self.metrics), dict(self.per_image), dict(self.samples)
        for name, other in others.items():
            for metric in ("cll", "accuracy"):
                metrics[f"{metric}_{name}"] = other.metrics[metric]
                values[f"{metric}_{name}"] = other.per_image[metric]
            samples[f"cll_{name}"] = other.samples["cll"]
        return Evaluation(metrics, values, samples)


def check_protocol(protocol: str) -> str:
    """Return the protocol's name, or raise if there is none of that name."""
    if protocol not in PROTOCOLS:
        raise unknown_name("protocol", protocol, PROTOCOLS)
    return protocol


def cross_validated(
    log_probs: LogProbs,
    labels: Labels,
    *,
    seed: int,
    halvings: int = 5,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
    protocol: str = "standard",
    view_temperature: float = 1.0,
    averages: Averages | None = None,
) -> Evaluation:
    """Score log-probabilities `[n, c]`, each image at a temperature fitted on others.

    In the protocol "paper" each random halving is used both ways: the temperature comes from one
    half, all metrics from the other; `halvings` of 5 gives ten values. "standard" shrinks
    the temperatures of fewer than `MANY` images; below `FEW` it calibrates each tenth of them by
    the others, and all metrics are those of all images. The images of a group stay together;
    with `weights` `[n]` all means are weighted. The log-probabilities are an average at a
    `view_temperature`; `averages` returns others, for the images to calibrate on.
    """
    _check(log_probs, labels)
    rounds = partitions(len(labels), protocol, halvings, seed, groups)
    # A tenth of few images is too small for metrics of its own.
    whole = len(rounds[0]) > 2
    parts = rounds if whole else [[pair] for one in rounds for pair in one]
    fit = _Calibration(
        labels, weights, groups, protocol, averages or (lambda _: (log_probs, view_temperature))
    )
    correct, cll = np.zeros(len(labels)), np.zeros(len(labels))
    chosen = np.unique(np.linspace(0, len(labels) - 1, _SAMPLE).round().astype(np.int64))
    sample = np.empty((len(chosen), log_probs.shape[1]), dtype=np.float32)
    found: list[dict[str, float]] = []
    sizes = []
    for part in parts:
        score = np.concatenate([score for _, score in part])
        plain, calibrated, temperature = fit.of(part)
        own, true = None if weights is None else weights[score], labels[score]
        likelihoods = per_image_log_likelihood(calibrated, true)
        right = per_image_accuracy(plain, true)
        cll[score] += likelihoods / len(rounds)
        correct[score] += right
        places = np.searchsorted(chosen, score).clip(max=len(chosen) - 1)
        known = chosen[places] == score
        sample[places[known]] = calibrated[known]
        sizes.append(float(len(score) if own is None else own.sum()))
        found.append(
            {
                "accuracy": float(weighted_mean(right, own)),
                "log_likelihood": log_likelihood(plain, true, own),
                "cll": float(weighted_mean(likelihoods, own)),
                "brier": brier(plain, true, own),
                "brier_calibrated": brier(calibrated, true, own),
                "ece": ece(plain, true, own),
                "ece_calibrated": ece(calibrated, true, own),
                "temperature": temperature,
            }
        )
    # Groups and weights make parts of any size: only then does a part count by its images.
    even = groups is None and weights is None
    metrics = {
        name: float(np.average([one[name] for one in found], weights=None if even else sizes))
        for name in found[0]
    }
    per_image = {"cll": cll, "accuracy": correct / len(rounds)}
    return Evaluation(metrics, per_image, {"cll": sample})


def cross_calibrated(
    log_probs: LogProbs,
    labels: Labels,
    *,
    seed: int,
    groups: ArrayLike | None = None,
    weights: FloatArray | None = None,
    protocol: str = "standard",
    view_temperature: float = 1.0,
) -> FloatArray:
    """Return log-probabilities `[n, c]`, each at a temperature fitted on other images."""
    _check(log_probs, labels)
    (part,) = partitions(len(labels), protocol, 1, seed, groups)
    calibrated = np.empty(log_probs.shape)
    score = np.concatenate([score for _, score in part])
    fit = _Calibration(labels, weights, groups, protocol, lambda _: (log_probs, view_temperature))
    _, calibrated[score], _ = fit.of(part)
    return calibrated


def partitions(
    images: int, protocol: str, halvings: int, seed: int, groups: ArrayLike | None
) -> list[list[Pair]]:
    """Return partitions of the images, every part with the images to calibrate it on."""
    if independent_images(np.ones(images), groups) < FEW and protocol != "paper":
        return [folds(images, _FOLDS, seed, groups)]
    pairs = halve(images, halvings, seed, groups)
    return [pairs[place : place + 2] for place in range(0, len(pairs), 2)]


@dataclass(frozen=True)
class _Calibration:
    """Calibrates the images of a part by others."""

    labels: Labels
    weights: FloatArray | None
    groups: ArrayLike | None
    protocol: str
    averages: Averages

    @property
    def prior(self) -> float:
        """How strongly temperatures are shrunk towards 1."""
        known = independent_images(np.ones(len(self.labels)), self.groups)
        return 0.0 if check_protocol(self.protocol) == "paper" or known >= MANY else PRIOR

    def of(self, pairs: Sequence[Pair]) -> tuple[LogProbs, FloatArray, float]:
        """Return the scored images' log-probabilities, calibrated too, and the mean temperature."""
        plain, calibrated, temperatures = [], [], [1.0]
        for calibrate, score in pairs:
            log_probs, kappa = self.averages(calibrate)
            temperatures.append(
                fit_temperature(
                    log_probs[calibrate],
                    self.labels[calibrate],
                    None if self.weights is None else self.weights[calibrate],
                    groups=None if self.groups is None else np.asarray(self.groups)[calibrate],
                    prior=self.prior,
                    view_temperature=kappa,
                    start=temperatures[-1],
                )
            )
            plain.append(log_probs[score])
            calibrated.append(temper(plain[-1], temperatures[-1]))
        mean = float(np.mean(temperatures[1:]))
        return np.concatenate(plain), np.concatenate(calibrated), mean


def reliability_bins(
    log_probs: LogProbs, labels: Labels, weights: FloatArray | None = None
) -> tuple[ReliabilityBin, ...]:
    """Sort images into the 15 bins of the ECE by the probability of their predicted class.

    An empty bin has share 0, its middle as confidence, and accuracy 0.
    """
    own = np.ones(len(labels)) if weights is None else weights
    confidence = confidences(log_probs)
    bins = np.clip(np.ceil(confidence * ECE_BINS).astype(np.int64) - 1, 0, ECE_BINS - 1)
    correct = per_image_accuracy(log_probs, labels)
    found = []
    for place in range(ECE_BINS):
        inside = bins == place
        if not inside.any():
            found.append(ReliabilityBin(0.0, (place + 0.5) / ECE_BINS, 0.0))
            continue
        share = float(own[inside].sum() / own.sum())
        means = (weighted_mean(one[inside], own[inside]) for one in (confidence, correct))
        found.append(ReliabilityBin(share, *map(float, means)))
    return tuple(found)


def selective_risks(
    plain: LogProbs,
    policy: LogProbs,
    disagreement: FloatArray,
    labels: Labels,
    groups: ArrayLike | None,
    weights: FloatArray | None,
) -> SelectiveRisks | None:
    """Return the gain from leaving unsure images unanswered; None if there are too few images.

    `plain` and `policy` are calibrated `[n, c]`; `disagreement` `[n]` is of the policy's views.
    """
    own = np.ones(len(labels)) if weights is None else weights
    if independent_images(own, groups) < FEWEST_SELECTIVE:
        return None
    first, own_answers = (
        (confidences(one), per_image_accuracy(one, labels)) for one in (plain, policy)
    )
    score = partial(selective, groups=groups, weights=weights)

    def with_errors(found: Selective, log_probs: LogProbs) -> Selective:
        return replace(
            found,
            adaptive_ece=adaptive_ece(log_probs, labels, weights),
            classwise_ece=classwise_ece(log_probs, labels, weights),
        )

    return SelectiveRisks(
        plain=with_errors(score(*first), plain),
        policy=with_errors(score(*own_answers, plain=first), policy),
        disagreement=score(-disagreement, own_answers[1], plain=first),
    )


def differences(
    one: Sequence[Evaluation],
    other: Sequence[Evaluation],
    groups: ArrayLike | None,
    weights: FloatArray | None = None,
    average: str = "",
) -> dict[str, Interval]:
    """Return the differences in cLL and accuracy, one − other, as `Setup.differences` does."""
    cll, accuracy = (
        per_image(one, f"{metric}{average}") - per_image(other, f"{metric}{average}")
        for metric in ("cll", "accuracy")
    )
    likely = likely_between(one, other, f"cll{average}")
    return {
        "cll": paired_interval(cll, groups=groups, weights=weights, likely=likely),
        "accuracy": share_interval(accuracy, groups=groups, weights=weights),
    }


def likely_between(
    one: Sequence[Evaluation], other: Sequence[Evaluation], metric: str = "cll"
) -> float:
    """Return the variance of two methods' difference in cLL that their predictions imply."""
    samples = (np.mean([run.samples[metric] for run in runs], axis=0) for runs in (one, other))
    return likely_variance(*samples)


def per_image(runs: Sequence[Evaluation], metric: str) -> FloatArray:
    """Return a metric of each image `[n]`, averaged over the runs."""
    mean: FloatArray = np.mean([one.per_image[metric] for one in runs], axis=0)
    return mean


def prefix_temperatures(
    log_probs: Iterable[LogProbs],
    length: int,
    labels: Labels,
    weights: FloatArray | None = None,
    groups: ArrayLike | None = None,
    view_temperature: float = 1.0,
) -> tuple[float, ...]:
    """Return the temperature of each prefix of a policy of `length` entries."""
    how: dict[str, Any] = {"groups": groups, "view_temperature": view_temperature}
    found = [1.0]
    for mean in prefix_log_probs(log_probs, range(1, length + 1)):
        found.append(fit_temperature(mean, labels, weights, start=found[-1], **how))
    return tuple(found[1:])


def _check(log_probs: LogProbs, labels: Labels) -> None:
    if log_probs.ndim != 2 or labels.shape != log_probs.shape[:1]:
        raise RelookError(
            "expected log-probabilities [n, class] and labels [n], "
            f"got {list(log_probs.shape)} and {list(labels.shape)}"
        )
    if len(labels) < 4:
        raise RelookError(f"expected at least 4 images to cross-validate on, got {len(labels)}")
