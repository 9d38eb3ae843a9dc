import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import minimize
from tests.support import refused
from tests.unit.deploy.exit_cases import predictions

from relook.deploy.weights import fit_weights, learn_weights, project_to_simplex
from relook.errors import RelookError
from relook.numerics.calibration import (
    calibrated_log_likelihood,
    fit_temperature,
    mean_log_probs,
    temper,
)

Array = NDArray[np.float64]


def _uneven(images: int, seed: int = 0) -> tuple[Array, NDArray[np.int64]]:
    """Three views, each worse than the one before."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, images)
    logits = generator.normal(size=(3, images, 4)) * np.array([1.0, 2.5, 4.0])[:, None, None]
    logits[:, np.arange(images), labels] += 2.5
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)), labels


def _cll(log_probs: Array, labels: NDArray[np.int64], weights: Array) -> float:
    return calibrated_log_likelihood(mean_log_probs(log_probs, counts=weights), labels)[0]


@given(arrays(np.float64, st.integers(1, 8), elements=st.floats(-5, 5)))
def test_the_projection_is_the_nearest_point_of_the_simplex(values: Array) -> None:
    found = project_to_simplex(values)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    # The simplex is convex: the nearest point is the one from which no corner is nearer to it.
    corners = np.eye(len(values))
    assert ((corners - found) @ (values - found)).max() <= 1e-9


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_weights_are_those_of_a_search_by_brute_force(seed: int) -> None:
    log_probs, labels = _uneven(250, seed)
    weights, temperature, cll = fit_weights(log_probs, labels)
    grid = np.linspace(0, 1, 41)
    best = max(
        _cll(log_probs, labels, np.array([one, other, max(0.0, 1 - one - other)]))
        for one in grid
        for other in grid
        if one + other <= 1
    )
    assert cll >= best - 1e-6
    assert cll == pytest.approx(_cll(log_probs, labels, weights), abs=1e-9)
    assert calibrated_log_likelihood(mean_log_probs(log_probs, counts=weights), labels)[
        1
    ] == pytest.approx(temperature, abs=1e-4)


def test_weights_are_those_of_scipys_optimiser() -> None:
    log_probs, labels = _uneven(300, 5)
    log_probs = np.concatenate([log_probs, _uneven(300, 5)[0][::-1] * 0.7])
    log_probs -= np.log(np.exp(log_probs).sum(axis=-1, keepdims=True))
    found = minimize(
        lambda w: -_cll(log_probs, labels, np.maximum(w, 0)),
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 300},
    )
    assert fit_weights(log_probs, labels)[2] >= -found.fun - 1e-6


def test_better_views_get_more_and_held_out_images_say_so() -> None:
    log_probs, labels = _uneven(1500)
    found = learn_weights(log_probs, labels)
    assert found.weights[0] > 0.6 > 0.3 > found.weights[2]
    assert found.better
    assert found.gain.low > 0
    assert found.cll - found.cll_equal == pytest.approx(found.gain.estimate)
    assert found.fit_cll > found.fit_cll_equal


def test_equal_views_stay_equal_though_the_fit_likes_others() -> None:
    log_probs, labels = predictions(200, views=12)
    found = learn_weights(log_probs, labels)
    assert found.fit_cll > found.fit_cll_equal
    assert found.fit_cll - found.fit_cll_equal > found.gain.estimate
    assert not found.better
    assert found.equal == (1 / 12,) * 12


def test_what_the_policy_repeats_counts_as_often() -> None:
    log_probs, labels = predictions(100, views=3)
    found = learn_weights(log_probs, labels, counts=(2, 1, 1))
    assert found.equal == (0.5, 0.25, 0.25)
    expected = _cll(log_probs.astype(np.float64), labels, np.array([0.5, 0.25, 0.25]))
    assert found.fit_cll_equal == pytest.approx(expected)


def test_wrong_predictions_are_refused() -> None:
    log_probs, labels = predictions(20, views=3)
    with pytest.raises(RelookError, match=r"expected log-probabilities \[view, image, class\]"):
        learn_weights(log_probs[0], labels)
    refused("expected 3 counts", learn_weights, log_probs, labels, counts=(1, 2))


def test_few_images_hold_the_temperature_to_what_undoes_the_view_temperature() -> None:
    log_probs, labels = predictions(12, views=3)
    flat = temper(log_probs, 8.0)
    found = learn_weights(flat, labels, view_temperature=8.0)
    average = mean_log_probs(flat, counts=np.array(found.weights))
    assert found.temperature == fit_temperature(average, labels, view_temperature=8.0)
    assert found.temperature < learn_weights(flat, labels).temperature
