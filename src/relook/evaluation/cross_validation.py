"""Test-time cross-validation (the paper's section 4): calibrate on one half, score the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from relook.errors import RelookError
from relook.evaluation.comparison import ReliabilityBin
from relook.numerics.arrays import FloatArray, Indices, Labels, LogProbs
from relook.numerics.calibration import calibrated_log_likelihood, temper
from relook.numerics.metrics import (
    ECE_BINS,
    brier,
    ece,
    log_likelihood,
    per_image_accuracy,
    per_image_log_likelihood,
)
from relook.numerics.splits import halvings as halve


@dataclass(frozen=True)
class Evaluation:
    """Metrics by name, each the mean over all halves, and what single images add to them.

    `per_image["cll"]` `[n]` is an image's calibrated log-likelihood under the temperature of
    the half that it is not in, averaged over the halvings; `per_image["accuracy"]` `[n]` is 1
    where the most probable class is the label.
    """

    metrics: Mapping[str, float]
    per_image: Mapping[str, FloatArray]

    def named(self, **others: Evaluation) -> Evaluation:
        """Add the cLL and accuracy of other averages of the same views, as `cll_NAME`."""
        metrics, values = dict(self.metrics), dict(self.per_image)
        for name, other in others.items():
            for metric in ("cll", "accuracy"):
                metrics[f"{metric}_{name}"] = other.metrics[metric]
                values[f"{metric}_{name}"] = other.per_image[metric]
        return Evaluation(metrics, values)


def cross_validated(
    log_probs: LogProbs,
    labels: Labels,
    *,
    seed: int,
    halvings: int = 5,
    groups: ArrayLike | None = None,
    averages: Callable[[Indices], LogProbs] | None = None,
) -> Evaluation:
    """Score log-probabilities `[n, c]` as the paper does; `halvings` of 5 gives ten values.

    Each random halving is used both ways: the temperature comes from one half, all metrics
    from the other. The images of a group stay in one half. `averages` gives the log-probabilities
    `[n, c]` that the half to calibrate on asks for; they take the place of `log_probs`.
    """
    _check(log_probs, labels)
    pairs = halve(len(labels), halvings, seed, groups)
    correct, cll = np.zeros(len(labels)), np.zeros(len(labels))
    found: list[dict[str, float]] = []
    start = 1.0
    for calibrate, score in pairs:
        log_probs = log_probs if averages is None else averages(calibrate)
        _, start = calibrated_log_likelihood(log_probs[calibrate], labels[calibrate], start=start)
        calibrated = temper(log_probs[score], start)
        likelihoods = per_image_log_likelihood(calibrated, labels[score])
        cll[score] += likelihoods / halvings
        right = per_image_accuracy(log_probs[score], labels[score])
        correct[score] += right
        found.append(
            {
                "accuracy": float(right.mean()),
                "log_likelihood": log_likelihood(log_probs[score], labels[score]),
                "cll": float(likelihoods.mean()),
                "brier": brier(log_probs[score], labels[score]),
                "brier_calibrated": brier(calibrated, labels[score]),
                "ece": ece(log_probs[score], labels[score]),
                "ece_calibrated": ece(calibrated, labels[score]),
                "temperature": start,
            }
        )
    # Groups make halves of any size: only then does a half count by its images.
    sizes = None if groups is None else [len(score) for _, score in pairs]
    metrics = {
        name: float(np.average([one[name] for one in found], weights=sizes)) for name in found[0]
    }
    return Evaluation(metrics, {"cll": cll, "accuracy": correct / halvings})


def cross_calibrated(
    log_probs: LogProbs, labels: Labels, *, seed: int, groups: ArrayLike | None = None
) -> FloatArray:
    """Return log-probabilities `[n, c]`, each half under the other half's temperature."""
    _check(log_probs, labels)
    calibrated = np.empty(log_probs.shape)
    for calibrate, score in halve(len(labels), 1, seed, groups):
        _, temperature = calibrated_log_likelihood(log_probs[calibrate], labels[calibrate])
        calibrated[score] = temper(log_probs[score], temperature)
    return calibrated


def reliability_bins(log_probs: LogProbs, labels: Labels) -> tuple[ReliabilityBin, ...]:
    """Sort images into the 15 bins of the ECE by the probability of their predicted class.

    An empty bin has share 0, its middle as confidence, and accuracy 0.
    """
    confidence = np.exp(log_probs.max(axis=1).astype(np.float64))
    bins = np.clip(np.ceil(confidence * ECE_BINS).astype(np.int64) - 1, 0, ECE_BINS - 1)
    correct = per_image_accuracy(log_probs, labels)
    found = []
    for place in range(ECE_BINS):
        inside = bins == place
        if not inside.any():
            found.append(ReliabilityBin(0.0, (place + 0.5) / ECE_BINS, 0.0))
            continue
        means = (inside.mean(), confidence[inside].mean(), correct[inside].mean())
        found.append(ReliabilityBin(*(float(mean) for mean in means)))
    return tuple(found)


def prefix_log_probs(log_probs: Iterable[LogProbs], lengths: Iterable[int]) -> Iterator[FloatArray]:
    """Yield the log of the mean probability `[n, c]` of the first k entries, for each length k.

    `log_probs` is `[entry, n, c]`, or anything that gives the entries `[n, c]` one by one;
    the lengths must rise.
    """
    entries = iter(log_probs)
    total, done = np.zeros(()), 0
    for length in lengths:
        if length <= done:
            raise RelookError(f"expected rising lengths of at least 1, got {length} after {done}")
        while done < length:
            entry = next(entries, None)
            if entry is None:
                raise RelookError(f"expected at least {length} predictions, got {done}")
            # A float64 holds e^−80, the floor of every prediction, and sums of it.
            total = total + np.exp(entry, dtype=np.float64)
            done += 1
        with np.errstate(divide="ignore"):  # predictions from elsewhere may hold probability 0
            yield np.log(total / done)


def _check(log_probs: LogProbs, labels: Labels) -> None:
    if log_probs.ndim != 2 or labels.shape != log_probs.shape[:1]:
        raise RelookError(
            "expected log-probabilities [n, class] and labels [n], "
            f"got {list(log_probs.shape)} and {list(labels.shape)}"
        )
    if len(labels) < 4:
        raise RelookError(f"expected at least 4 images to cross-validate on, got {len(labels)}")
