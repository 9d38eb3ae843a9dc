"""Learned weights of views: the fit, and the policy that has them."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.optimize import minimize
from tests.support import different, refused
from tests.unit.deploy.exit_cases import policy_of, predictions

from relook.data import Dataset
from relook.deploy import calibrate as module
from relook.deploy.calibrate import weigh_policy
from relook.deploy.tta.view_plan import plan_views
from relook.deploy.weights import (
    ENTRIES,
    fit_weights,
    learn_weights,
    project_to_simplex,
    weighted_policy,
)
from relook.errors import RelookError
from relook.numerics.calibration import (
    calibrated_log_likelihood,
    fit_temperature,
    mean_log_probs,
    temper,
)
from relook.policy import Policy, Step, SubPolicy

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


@pytest.mark.parametrize("seed", [5, 6])
def test_weights_are_those_of_scipys_optimiser(seed: int) -> None:
    log_probs, labels = _uneven(300, seed)
    log_probs = np.concatenate([log_probs, log_probs[::-1] * 0.7])
    log_probs -= np.log(np.exp(log_probs).sum(axis=-1, keepdims=True))
    found = minimize(
        lambda w: -_cll(log_probs, labels, np.maximum(w, 0)),
        np.full(6, 1 / 6),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 300},
    )
    weights, temperature, cll = fit_weights(log_probs, labels)
    assert cll >= -found.fun - 1e-6
    assert cll == pytest.approx(_cll(log_probs, labels, weights), abs=1e-9)
    average = mean_log_probs(log_probs, counts=weights)
    assert calibrated_log_likelihood(average, labels)[1] == pytest.approx(temperature, abs=1e-4)


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


POLICY = policy_of(3)
LABELS = np.random.default_rng(0).integers(0, 4, 400)


def _views(spread: tuple[float, ...]) -> NDArray[np.float32]:
    """Three views of images, of which each errs by its own spread."""
    generator = np.random.default_rng(1)
    logits = generator.normal(size=(3, 400, 4)) * np.array(spread)[:, None, None]
    logits[:, np.arange(400), LABELS] += 2.5
    logits -= np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    return np.asarray(logits, dtype=np.float32)


@pytest.fixture
def dataset() -> Dataset:
    images = torch.zeros((400, 3, 32, 32), dtype=torch.uint8)
    own = different(len(LABELS))
    return Dataset(images, LABELS, tuple("abcd"), "d", identities=own)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda w: sum(w) > 0.01))
def test_repeats_are_the_weights_in_hundredths(weights: list[float]) -> None:
    made = weighted_policy(POLICY, weights)
    counts = dict(made.counts())
    assert len(made) == ENTRIES
    for sub, weight in zip(POLICY, weights, strict=True):
        assert abs(counts.get(sub, 0) - ENTRIES * weight / sum(weights)) < 1


def test_a_budget_is_the_first_views_with_their_weights() -> None:
    made = weighted_policy(POLICY, (0.2, 0.5, 0.3))
    assert [count for _, count in made.for_budget(2).counts()] == [20, 50]
    assert plan_views(made, views=2, temperature=None).counts == (20, 50)


def test_weights_are_used_where_held_out_images_say_so(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_probs = _views((1.0, 4.0, 6.0))
    monkeypatch.setattr(module, "predict_views", lambda *_, **__: log_probs)
    found = weigh_policy(lambda images: images, dataset, POLICY)  # type: ignore[arg-type]
    assert found.used
    assert found.learned.better
    counts = np.array([dict(found.policy.counts()).get(sub, 0) for sub in POLICY])
    np.testing.assert_allclose(counts / 100, found.learned.weights, atol=0.01)
    average = mean_log_probs(log_probs, counts=counts)
    cll, _ = calibrated_log_likelihood(average, LABELS)
    temperature = fit_temperature(average, LABELS)
    assert cll == pytest.approx(found.learned.fit_cll, abs=1e-3)
    assert found.policy.temperatures is not None
    assert found.policy.temperatures[-1] == pytest.approx(temperature, rel=1e-3)


def test_equal_views_count_as_before_unless_always(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "predict_views", lambda *_, **__: _views((1.5, 1.5, 1.5)))
    kept = weigh_policy(lambda images: images, dataset, POLICY)  # type: ignore[arg-type]
    assert not kept.used
    assert kept.policy.subpolicies == POLICY.subpolicies
    assert len(kept.policy.temperatures or ()) == 3
    always = weigh_policy(lambda i: i, dataset, POLICY, always=True)  # type: ignore[arg-type]
    assert always.used
    assert len(always.policy) == ENTRIES


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 0.0, 0.0), (1.0, -1.0, 1.0)])
def test_weights_that_do_not_fit_are_told(weights: tuple[float, ...]) -> None:
    refused("expected", weighted_policy, POLICY, weights)


def test_fresh_draws_are_refused(dataset: Dataset) -> None:
    fresh = Policy((SubPolicy((Step("rotate", 3),)),))
    refused(r"policy\.freeze", weigh_policy, lambda images: images, dataset, fresh)
