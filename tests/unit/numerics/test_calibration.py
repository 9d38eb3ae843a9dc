from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp
from tests.oracles.plain_search import plain_cll, random_pool
from tests.support import refused

from relook.numerics.calibration import (
    LOG_FLOOR,
    calibrated_log_likelihood,
    calibrated_log_likelihoods,
    fit_temperature,
    mean_log_probs,
    temper,
)
from relook.numerics.metrics import log_likelihood


@given(
    seed=st.integers(0, 2**32 - 1),
    images=st.integers(1, 200),
    classes=st.integers(2, 50),
    skill=st.floats(0, 10),
    sharpness=st.sampled_from([0.001, 0.1, 1.0, 5.0, 30.0, 200.0]),
    zeros=st.sampled_from([0.0, 0.2, 0.8]),
)
@settings(max_examples=300, deadline=None)
def test_the_fit_agrees_with_scipy(
    seed: int, images: int, classes: int, skill: float, sharpness: float, zeros: float
) -> None:
    pool, labels = random_pool(
        seed, 1, images, classes, skill=skill, sharpness=sharpness, zeros=zeros
    )
    score, temperature = calibrated_log_likelihood(pool[0], labels)
    expected, expected_temperature = plain_cll(pool[0], labels)
    assert score == pytest.approx(expected, abs=1e-8)
    at_expected = log_likelihood(temper(pool[0], expected_temperature), labels)
    at_fitted = log_likelihood(temper(pool[0], temperature), labels)
    assert at_fitted == pytest.approx(score, abs=1e-9)
    # Where the score is level over a range of temperatures, any of them is right.
    level = abs(log_likelihood(temper(pool[0], expected_temperature * 1.01), labels) - at_expected)
    if level > 1e-7:
        assert temperature == pytest.approx(expected_temperature, abs=1e-3 * max(1, temperature))


def test_the_fit_recovers_a_known_temperature() -> None:
    rng = np.random.default_rng(0)
    true = log_softmax(2 * rng.normal(size=(100_000, 4)), axis=1)
    labels = (rng.random((100_000, 1)) > np.exp(true).cumsum(axis=1)[:, :-1]).sum(axis=1)
    assert fit_temperature(temper(true, 1.0), labels) == pytest.approx(1.0, rel=0.02)
    assert fit_temperature(temper(true, 0.4), labels) == pytest.approx(2.5, rel=0.02)
    assert fit_temperature(temper(true, 2.5), labels) == pytest.approx(0.4, rel=0.02)


def test_images_that_are_all_right_do_not_drive_the_temperature_to_its_limit() -> None:
    log_probs = temper(np.log(np.tile([0.9, 0.05, 0.05], (50, 1))), 1.0)
    labels = np.zeros(50, dtype=np.int64)
    assert fit_temperature(log_probs, labels, prior=0.0) == pytest.approx(0.05)
    found = fit_temperature(log_probs, labels)
    assert 0.3 < found < 0.8
    # Copies of 5 images are no more than those.
    copies = fit_temperature(log_probs, labels, groups=np.arange(50) % 5)
    assert copies == pytest.approx(fit_temperature(log_probs[:5], labels[:5]))
    assert found < copies < 1


@pytest.mark.parametrize("prior", [0.5, 8.0])
def test_the_shrunk_fit_agrees_with_scipy(prior: float) -> None:
    pool, labels = random_pool(3, 1, 40, 6, skill=1.5)

    def loss(log_beta: float) -> float:
        likelihood = 40 * log_likelihood(temper(pool[0], np.exp(-log_beta)), labels)
        return float(-likelihood - prior * (log_beta - np.exp(log_beta)))

    expected = np.exp(-minimize_scalar(loss, bounds=(-2, 2), options={"xatol": 1e-10}).x)
    assert fit_temperature(pool[0], labels, prior=prior) == pytest.approx(expected, abs=1e-5)


def test_weights_count_as_repeated_images() -> None:
    pool, labels = random_pool(1, 1, 60, 5, skill=1.0)
    counts = np.random.default_rng(2).integers(0, 4, size=60)
    weighted = calibrated_log_likelihood(pool[0], labels, counts.astype(np.float64))
    repeated = calibrated_log_likelihood(pool[0].repeat(counts, axis=0), labels.repeat(counts))
    assert weighted == pytest.approx(repeated, abs=1e-10)


def test_one_fit_is_the_same_to_the_last_bit_alone_and_in_company() -> None:
    pool, labels = random_pool(3, 40, 55, 7, skill=1.0, sharpness=2.0)
    pool[5] = -np.log(7)
    pool[6] = log_softmax(100.0 * np.eye(7)[labels], axis=1)
    scores, temperatures = calibrated_log_likelihoods(pool, labels)
    for each, score, temperature in zip(pool, scores, temperatures, strict=True):
        assert calibrated_log_likelihood(each, labels) == (score, temperature)


@pytest.mark.parametrize("start", [0.05, 0.1, 1.0, 7.0, 20.0])
def test_the_first_guess_does_not_matter(start: float) -> None:
    for sharpness in (0.01, 0.3, 1.0, 4.0, 100.0):
        pool, labels = random_pool(4, 1, 50, 6, skill=1.0, sharpness=sharpness)
        score, temperature = calibrated_log_likelihood(pool[0], labels)
        other, other_temperature = calibrated_log_likelihood(pool[0], labels, start=start)
        assert other == pytest.approx(score, abs=1e-12)
        assert other_temperature == pytest.approx(temperature, rel=1e-5)


@pytest.mark.parametrize("start", [0.05, 0.1, 1.0, 20.0])
def test_perfect_predictions_get_the_lowest_temperature_wrong_ones_the_highest(
    start: float,
) -> None:
    labels = np.array([0, 2, 1, 2])
    with np.errstate(divide="ignore"):
        certain = np.log(np.eye(3)[labels])
    nearly = log_softmax(5 * np.eye(3)[labels], axis=1)
    assert calibrated_log_likelihood(certain, labels, start=start) == (0.0, 0.05)
    assert calibrated_log_likelihood(nearly, labels, start=start)[1] == 0.05
    score, temperature = calibrated_log_likelihood(np.roll(certain, 1, axis=1), labels, start=start)
    assert temperature == 20.0
    assert score == pytest.approx(log_softmax([0, -4.0, -4.0])[1])


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")], ids=str)
def test_uniform_predictions_get_temperature_1(dtype: np.dtype[Any]) -> None:
    uniform = np.full((6, 10), -np.log(10)).astype(dtype)
    score, temperature = calibrated_log_likelihood(uniform, np.arange(6), start=3.0)
    assert score == pytest.approx(-np.log(10))
    assert temperature == 1.0


def test_the_same_prediction_for_every_image_is_defined() -> None:
    constant = np.tile(np.log([0.7, 0.2, 0.1]), (10, 1))
    labels = np.array([0] * 7 + [1] * 2 + [2])
    score, temperature = calibrated_log_likelihood(constant, labels)
    assert temperature == pytest.approx(1.0, abs=1e-6)
    assert score == pytest.approx(np.mean(constant[0][labels]))


def test_temper_is_the_scaled_softmax_with_a_floor() -> None:
    pool, _ = random_pool(6, 3, 20, 5)
    expected = log_softmax(pool.astype(np.float64) / 1.7, axis=-1)
    np.testing.assert_allclose(temper(pool, 1.7), expected, atol=1e-12)
    np.testing.assert_allclose(temper(np.array([0.0, -np.inf]), 2.0), [0.0, LOG_FLOOR / 2])
    np.testing.assert_allclose(np.exp(temper(pool, 0.05)).sum(axis=-1), 1.0)


@pytest.mark.parametrize("temperature", [0.0, -1.0, 1e-40, 1e40, np.nan, np.inf])
def test_temper_refuses_impossible_temperatures(temperature: float) -> None:
    refused("temperature from 0.001 to 1000", temper, np.log([[0.5, 0.5]]), temperature)


@pytest.mark.parametrize("axis", [0, 1, -2])
def test_the_mean_is_that_of_the_probabilities(axis: int) -> None:
    pool, _ = random_pool(7, 6, 5, 4, zeros=0.2)
    expected = logsumexp(pool.astype(np.float64), axis=axis) - np.log(pool.shape[axis])
    np.testing.assert_allclose(mean_log_probs(pool, axis=axis), expected, atol=1e-12)


def test_counts_weigh_the_mean_and_tiny_probabilities_survive() -> None:
    pool, _ = random_pool(8, 3, 5, 4)
    expected = mean_log_probs(pool[[0, 0, 2, 2, 2]])
    np.testing.assert_allclose(mean_log_probs(pool, counts=np.array([2, 0, 3])), expected)
    tiny = np.array([[-2000.0], [-2001.0]])
    np.testing.assert_allclose(mean_log_probs(tiny), logsumexp(tiny, axis=0) - np.log(2))
    np.testing.assert_allclose(mean_log_probs(tiny - [[0], [2000]], counts=np.array([0, 1])), -4001)
    assert np.isneginf(mean_log_probs(np.full((2, 1), -np.inf)))[0]


@pytest.mark.parametrize("counts", [[1.0], [0, 0], [1, -1], [np.nan, 1]])
def test_bad_counts_are_refused(counts: list[float]) -> None:
    refused("expected 2 counts", mean_log_probs, np.log([[0.5, 0.5]] * 2), counts=np.array(counts))


def test_few_images_hold_the_temperature_of_an_average_to_what_undoes_its_view_temperature() -> (
    None
):
    """Views at κ are flatter by κ: a single one must be calibrated as it is without κ."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(20, 4))
    log_probs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    labels = log_probs.argmax(axis=1)
    usual = fit_temperature(log_probs, labels)
    flatter = fit_temperature(temper(log_probs, 4.0), labels, view_temperature=4.0)
    assert flatter == pytest.approx(usual / 4, rel=1e-4)
