import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.support import different, refused
from tests.unit.deploy.exit_cases import policy_of

from relook.data import Dataset
from relook.deploy import calibrate as module
from relook.deploy.calibrate import weigh_policy
from relook.deploy.tta.view_plan import plan_views
from relook.deploy.weights import ENTRIES, weighted_policy
from relook.numerics.calibration import calibrated_log_likelihood, fit_temperature, mean_log_probs
from relook.policy import Policy, Step, SubPolicy

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
