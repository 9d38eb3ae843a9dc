"""The evaluation protocol against plain loops over SciPy, scikit-learn and torchmetrics."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp
from sklearn.metrics import accuracy_score, log_loss
from torchmetrics.functional.classification import multiclass_calibration_error

from relook.evaluation.cross_validation import cross_validated
from relook.numerics.calibration import prefix_log_probs
from relook.numerics.splits import halvings

Array = NDArray[Any]


def predictions(images: int, classes: int, sharpness: float, seed: int) -> tuple[Array, Array]:
    """Predictions that are right more often than not, and over- or underconfident."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, images)
    logits = generator.normal(size=(images, classes))
    logits[np.arange(images), labels] += 1.5
    return log_softmax(sharpness * logits, axis=1).astype(np.float32), labels


def tempered(log_probs: Array, temperature: float) -> Array:
    return np.asarray(log_softmax(log_probs.astype(np.float64) / temperature, axis=1))


def best_temperature(log_probs: Array, labels: Array) -> float:
    def loss(log_temperature: float) -> float:
        calibrated = np.exp(tempered(log_probs, float(np.exp(log_temperature))))
        return float(log_loss(labels, calibrated, labels=range(log_probs.shape[1])))

    found = minimize_scalar(loss, bounds=(np.log(0.05), np.log(20)), options={"xatol": 1e-9})
    return float(np.exp(found.x))


def brier(log_probs: Array, labels: Array) -> float:
    total = 0.0
    for row, label in zip(log_probs, labels, strict=True):
        for place, value in enumerate(row):
            total += (np.exp(value) - (place == label)) ** 2
    return total / len(labels)


def ece(log_probs: Array, labels: Array) -> float:
    found = multiclass_calibration_error(
        torch.from_numpy(np.exp(log_probs.astype(np.float64))),
        torch.from_numpy(labels),
        num_classes=log_probs.shape[1],
        n_bins=15,
    )
    return float(found)


def by_hand(log_probs: Array, labels: Array, seed: int, count: int) -> tuple[Any, Array]:
    """All metrics, and each image's share of the cLL, one half after the other."""
    collected: dict[str, list[float]] = {}
    images: list[list[float]] = [[] for _ in labels]
    for calibrate, score in halvings(len(labels), count, seed):
        temperature = best_temperature(log_probs[calibrate], labels[calibrate])
        plain, true = log_probs[score], labels[score]
        calibrated = tempered(plain, temperature)
        known = range(log_probs.shape[1])
        for name, value in {
            "accuracy": accuracy_score(true, plain.argmax(axis=1)),
            "log_likelihood": -log_loss(true, np.exp(tempered(plain, 1.0)), labels=known),
            "cll": -log_loss(true, np.exp(calibrated), labels=known),
            "brier": brier(plain, true),
            "brier_calibrated": brier(calibrated, true),
            "ece": ece(plain, true),
            "ece_calibrated": ece(calibrated, true),
            "temperature": temperature,
        }.items():
            collected.setdefault(name, []).append(value)
        for image, row in zip(score, calibrated, strict=True):
            images[image].append(row[labels[image]])
    assert all(len(values) == 2 * count for values in collected.values())
    means = {name: float(np.mean(values)) for name, values in collected.items()}
    return means, np.array([np.mean(values) for values in images])


@pytest.mark.parametrize(
    ("images", "classes", "sharpness"), [(120, 3, 0.4), (101, 10, 1.0), (60, 25, 4.0)]
)
def test_agrees_with_the_protocol_done_by_hand(images: int, classes: int, sharpness: float) -> None:
    log_probs, labels = predictions(images, classes, sharpness, seed=classes)
    expected, per_image = by_hand(log_probs, labels, seed=5, count=5)
    found = cross_validated(log_probs, labels, seed=5, protocol="paper")
    assert set(found.metrics) == set(expected)
    for name, value in expected.items():
        tolerance = 2e-4 if name == "temperature" else 2e-6
        assert found.metrics[name] == pytest.approx(value, abs=tolerance), name
    np.testing.assert_allclose(found.per_image["cll"], per_image, atol=1e-4)
    right = log_probs.argmax(axis=1) == labels
    np.testing.assert_array_equal(found.per_image["accuracy"], right)


def test_prefixes_agree_with_logsumexp() -> None:
    generator = np.random.default_rng(2)
    entries = log_softmax(generator.normal(scale=20, size=(7, 11, 5)), axis=2).astype(np.float32)
    lengths = (1, 3, 4, 7)
    for length, found in zip(lengths, prefix_log_probs(entries, lengths), strict=True):
        exact = entries[:length].astype(np.float64)
        np.testing.assert_allclose(found, logsumexp(exact, axis=0) - np.log(length), atol=1e-12)
