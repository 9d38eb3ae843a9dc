from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, top_k_accuracy_score
from tests.oracles.plain_search import Array, random_pool
from torchmetrics.functional.classification import multiclass_calibration_error

from relook.numerics.calibration import LOG_FLOOR
from relook.numerics.metrics import (
    accuracy,
    brier,
    ece,
    log_likelihood,
    per_image_log_likelihood,
    top_k_accuracy,
)

CASES = given(
    seed=st.integers(0, 2**32 - 1),
    images=st.integers(1, 200),
    classes=st.integers(3, 30),
    sharpness=st.sampled_from([0.1, 1.0, 4.0]),
)
FEW = settings(max_examples=60, deadline=None)


def case(seed: int, images: int, classes: int, sharpness: float) -> tuple[Array, Array, Array]:
    pool, labels = random_pool(seed, 1, images, classes, sharpness=sharpness)
    exact = pool[0].astype(np.float64)
    exact -= np.log(np.exp(exact).sum(axis=1, keepdims=True))
    return exact, labels, np.random.default_rng(seed).uniform(0.1, 3, size=images)


@CASES
@FEW
def test_metrics_agree_with_scikit_learn(
    seed: int, images: int, classes: int, sharpness: float
) -> None:
    log_probs, labels, some = case(seed, images, classes, sharpness)
    probabilities, every = np.exp(log_probs), np.arange(classes)
    for weights in (None, some):
        known = {"sample_weight": weights}
        assert accuracy(log_probs, labels, weights) == pytest.approx(
            accuracy_score(labels, probabilities.argmax(axis=1), **known)
        )
        for k in (1, 2, min(5, classes - 1)):
            assert top_k_accuracy(log_probs, labels, weights, k=k) == pytest.approx(
                top_k_accuracy_score(labels, probabilities, k=k, labels=every, **known)
            )
        assert log_likelihood(log_probs, labels, weights) == pytest.approx(
            -log_loss(labels, probabilities, labels=every, **known)
        )
        assert brier(log_probs, labels, weights) == pytest.approx(
            brier_score_loss(labels, probabilities, labels=every, scale_by_half=False, **known)
        )


def reference_ece(log_probs: Array, labels: Array) -> float:
    probabilities = torch.from_numpy(np.exp(log_probs))
    value = multiclass_calibration_error(
        probabilities, torch.from_numpy(labels), log_probs.shape[1], n_bins=15, norm="l1"
    )
    return float(value)


@CASES
@FEW
def test_ece_agrees_with_torchmetrics(
    seed: int, images: int, classes: int, sharpness: float
) -> None:
    log_probs, labels, _ = case(seed, images, classes, sharpness)
    assert ece(log_probs, labels) == pytest.approx(reference_ece(log_probs, labels), abs=1e-6)
    counts = np.random.default_rng(seed).integers(0, 4, size=images)
    counts[0] = 1
    repeated = reference_ece(log_probs.repeat(counts, axis=0), labels.repeat(counts))
    assert ece(log_probs, labels, counts.astype(np.float64)) == pytest.approx(repeated, abs=1e-6)


def test_ece_of_certain_predictions_is_the_error_rate() -> None:
    with np.errstate(divide="ignore"):
        certain = np.log(np.eye(4)[[0, 1, 2, 3]])
    assert ece(certain, np.array([0, 1, 2, 0])) == 0.25
    assert ece(certain + 1e-7, np.array([0, 1, 2, 3])) == pytest.approx(0, abs=1e-6)


def test_top_5_of_few_classes_is_1() -> None:
    pool, labels = random_pool(0, 1, 30, 4, skill=-5.0)
    assert top_k_accuracy(pool[0], labels) == 1.0
    assert top_k_accuracy(pool[0], labels, k=3) < 1.0


def test_equal_probabilities_go_to_the_lower_class_in_top_1_as_in_accuracy() -> None:
    uniform, labels = np.full((4, 4), -np.log(4)), np.arange(4)
    assert accuracy(uniform, labels) == top_k_accuracy(uniform, labels, k=1) == 0.25
    assert top_k_accuracy(uniform, labels, k=3) == 0.75


def test_log_likelihood_has_a_floor() -> None:
    log_probs = np.array([[0.0, -np.inf], [np.log(0.25), np.log(0.75)]], dtype=np.float32)
    np.testing.assert_allclose(
        per_image_log_likelihood(log_probs, np.array([1, 1])), [LOG_FLOOR, np.log(0.75)], rtol=1e-7
    )
    assert log_likelihood(log_probs, np.array([0, 0])) == pytest.approx(np.log(0.25) / 2)


def test_brier_is_summed_over_classes() -> None:
    log_probs = np.log([[0.5, 0.3, 0.2]])
    assert brier(log_probs, np.array([0])) == pytest.approx(0.25 + 0.09 + 0.04)


@pytest.mark.parametrize(
    ("function", "higher_is_better"),
    [
        (accuracy, True),
        (top_k_accuracy, True),
        (log_likelihood, True),
        (brier, False),
        (ece, False),
    ],
)
def test_each_metric_prefers_the_better_predictions_in_its_own_direction(
    function: Callable[..., float], higher_is_better: bool
) -> None:
    pool, labels = random_pool(1, 1, 400, 10, skill=2.0)
    good, bad = pool[0], np.roll(pool[0], 1, axis=1)
    assert (function(good, labels) > function(bad, labels)) == higher_is_better
    ones = np.full(len(labels), 2.5)
    assert function(good, labels, ones) == pytest.approx(function(good, labels))
    assert isinstance(function(good, labels), float)
