from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, roc_auc_score, roc_curve
from tests.oracles.plain_search import Array, random_pool
from torchmetrics.functional.classification import multiclass_calibration_error

from relook.numerics.calibration import LOG_FLOOR
from relook.numerics.metrics import (
    accuracy,
    adaptive_ece,
    answered,
    aurc,
    auroc,
    auroc_gain,
    brier,
    classwise_ece,
    ece,
    fpr95,
    log_likelihood,
    mutual_information,
    per_image_accuracy,
    per_image_log_likelihood,
    selective,
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


def test_certain_and_uniform_predictions() -> None:
    with np.errstate(divide="ignore"):
        certain = np.log(np.eye(4)[[0, 1, 2, 3]])
    assert ece(certain, np.array([0, 1, 2, 0])) == 0.25
    uniform = np.full((4, 4), -np.log(4))  # equal probabilities go to the lower class
    assert accuracy(uniform, np.arange(4)) == 0.25
    assert ece(certain + 1e-7, np.array([0, 1, 2, 3])) == pytest.approx(0, abs=1e-6)


def test_log_likelihood_has_a_floor() -> None:
    log_probs = np.array([[0.0, -np.inf], [np.log(0.25), np.log(0.75)]], dtype=np.float32)
    np.testing.assert_allclose(
        per_image_log_likelihood(log_probs, np.array([1, 1])), [LOG_FLOOR, np.log(0.75)], rtol=1e-7
    )
    assert log_likelihood(log_probs, np.array([0, 0])) == pytest.approx(np.log(0.25) / 2)


@CASES
@FEW
def test_calibration_errors_follow_the_published_formulas(
    seed: int, images: int, classes: int, sharpness: float
) -> None:
    log_probs, labels, weights = case(seed, images, classes, sharpness)
    probs = np.exp(log_probs)
    errors = [_ece_of(probs[:, k], labels == k, weights) for k in range(classes)]
    assert classwise_ece(log_probs, labels, weights) == pytest.approx(np.mean(errors), abs=1e-9)
    many = log_probs.repeat(15, axis=0) * np.linspace(1, 1.1, 15 * images)[:, None]
    many -= np.log(np.exp(many).sum(axis=1, keepdims=True))
    own = labels.repeat(15)
    order = np.argsort(many.max(axis=1), kind="stable")
    parts = np.array_split(order, 15)  # Mukhoti et al. 2020: bins of as many images each
    gaps = [
        abs((many[part].argmax(1) == own[part]).mean() - np.exp(many[part].max(1)).mean())
        for part in parts
    ]
    assert adaptive_ece(many, own) == pytest.approx(np.mean(gaps), abs=1e-9)
    assert adaptive_ece(many, own, np.full(len(own), 2.0)) == adaptive_ece(many, own)


def _ece_of(chance: Array, hit: Array, weights: Array) -> float:
    edges, total = np.arange(16) / 15, 0.0
    for low, high in pairwise(edges):
        inside = (chance > low) & (chance <= high)
        total += abs((weights * (hit - chance))[inside].sum())
    return float(total / weights.sum())


@CASES
@FEW
def test_selective_risk_follows_the_published_formula(
    seed: int, images: int, classes: int, sharpness: float
) -> None:
    log_probs, labels, weights = case(seed, images, classes, sharpness)
    sure, right = np.exp(log_probs.max(axis=1)), per_image_accuracy(log_probs, labels)
    order = np.argsort(-sure, kind="stable")
    risks = [np.mean(1 - right[order[: k + 1]]) for k in range(images)]
    assert aurc(sure, right) == pytest.approx(np.mean(risks), abs=1e-9)
    copies = (weights * 10).astype(int) + 1
    repeated = aurc(sure.repeat(copies), right.repeat(copies))
    assert aurc(sure, right, copies.astype(float)) == pytest.approx(repeated, abs=0.2)
    assert aurc(np.zeros(images), right) == pytest.approx(1 - right.mean())  # in any order
    whole = selective(sure.repeat(20), right.repeat(20))
    for one in whole.at:
        kept = np.repeat(order, 20)[: round(20 * images * one.share)]
        parts = answered(sure, one.share, np.ones(images))
        assert one.accuracy == pytest.approx((parts * right).sum() / parts.sum(), abs=1e-9)
        assert one.accuracy == pytest.approx(right[kept].mean(), abs=1e-9)
    assert 1 - whole.curve[-1] == pytest.approx(right.mean())


def test_answers_of_equally_sure_images_and_the_gain_over_others() -> None:
    right = np.array([1.0, 1, 0, 1, 0] * 40)
    sure = np.array([0.9, 0.9, 0.9, 0.9, 0.1] * 40)
    np.testing.assert_allclose(answered(sure, 0.6, np.ones(200)), np.tile([0.75] * 4 + [0], 40))
    found = selective(sure, right, (1 - sure, right))
    first = found.at[0]
    assert first.accuracy == pytest.approx(0.75)
    assert first.over_plain is not None
    assert first.over_plain.estimate == pytest.approx(0.75 - 90 / 160)
    assert first.over_plain.low > 0
    assert first.over_plain.confidence == pytest.approx(1 - 0.05 / 4)


def test_mutual_information_is_entropy_of_the_mean_less_the_mean_entropy() -> None:
    views = np.random.default_rng(0).dirichlet(np.ones(4), size=(5, 30))
    entropies = entropy(views, axis=2)
    wanted = entropy(views.mean(axis=0), axis=1) - entropies.mean(axis=0)
    np.testing.assert_allclose(mutual_information(np.log(views)), wanted, atol=1e-9)
    np.testing.assert_allclose(mutual_information(np.log(views[:1])), 0, atol=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_auroc_and_fpr95_are_those_of_scikit_learn(ties: bool) -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        own, foreign = generator.normal(1, 1, 150), generator.normal(0, 1, 90)
        if ties:
            own, foreign = own.round(1), foreign.round(1)
        is_own = np.repeat([1, 0], [150, 90])
        scores = np.concatenate([own, foreign])
        assert auroc(own, foreign) == pytest.approx(roc_auc_score(is_own, scores), abs=1e-9)
        passing, kept, _ = roc_curve(is_own, scores, drop_intermediate=False)
        assert fpr95(own, foreign) == pytest.approx(passing[np.argmax(kept >= 0.95)], abs=1e-9)


def test_the_interval_of_a_difference_is_about_that_of_the_bootstrap() -> None:
    generator = np.random.default_rng(1)
    own, foreign = generator.normal(1, 1, (2, 300)), generator.normal(0, 1, (2, 200))
    own[1] += 0.5 * own[0]
    foreign[1] += 0.5 * foreign[0]
    found = auroc_gain((own[0], foreign[0]), (own[1], foreign[1]))
    assert found.estimate == pytest.approx(auroc(own[0], foreign[0]) - auroc(own[1], foreign[1]))
    drawn = []
    for _ in range(500):
        mine, theirs = own[:, generator.integers(0, 300, 300)], generator.integers(0, 200, 200)
        one, other = (auroc(mine[i], foreign[i, theirs]) for i in range(2))
        drawn.append(one - other)
    half = (found.high - found.low) / 2
    assert half == pytest.approx(1.96 * np.std(drawn), rel=0.12)
