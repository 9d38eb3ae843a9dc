from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.support import refused

from relook.evaluation.comparison import METRICS_OF_A_ROW
from relook.evaluation.cross_validation import (
    cross_calibrated,
    cross_validated,
    reliability_bins,
)
from relook.numerics.calibration import prefix_log_probs
from relook.numerics.metrics import ece, log_likelihood
from relook.numerics.splits import halvings

Array = NDArray[Any]


def predictions(images: int = 80, seed: int = 0, gain: float = 2.0) -> tuple[Array, Array]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, images)
    logits = generator.normal(size=(images, 4)) * 3
    logits[np.arange(images), labels] += gain
    return log_softmax(logits, axis=1), labels


def test_has_every_metric_of_a_row() -> None:
    found = cross_validated(*predictions(), seed=0)
    assert tuple(found.metrics) == METRICS_OF_A_ROW


def test_the_images_shares_add_up_to_the_metrics() -> None:
    log_probs, labels = predictions(images=60)
    found = cross_validated(log_probs, labels, seed=1)
    for name in ("cll", "accuracy"):
        assert found.per_image[name].mean() == pytest.approx(found.metrics[name], abs=1e-12)


def test_calibration_never_sees_the_image_that_it_scores() -> None:
    log_probs, labels = predictions(images=40)
    paper: dict[str, Any] = {"seed": 2, "protocol": "paper"}
    before = cross_validated(log_probs, labels, halvings=1, **paper)
    (first, second), _ = halvings(40, 1, 2)
    spoilt = log_probs.copy()
    spoilt[second] = spoilt[second][:, ::-1]
    after = cross_validated(spoilt, labels, halvings=1, **paper)
    # The second half's temperature has changed, so all of the first half has …
    assert (after.per_image["cll"][first] != before.per_image["cll"][first]).all()
    # … and its own scores are those of the old temperature, which came from the first half.
    expected = cross_calibrated(log_probs, labels, **paper)[second][:, ::-1]
    np.testing.assert_allclose(
        after.per_image["cll"][second], expected[np.arange(20), labels[second]], atol=1e-9
    )


@given(st.integers(0, 1000), st.floats(0.6, 5))
@settings(max_examples=25)
def test_calibrated_metrics_do_not_depend_on_the_models_own_temperature(
    seed: int, temperature: float
) -> None:
    # So good that no half of them asks for a temperature at the limit of 20.
    log_probs, labels = predictions(images=100, seed=seed, gain=5)
    sharpened = log_softmax(log_probs / temperature, axis=1)
    one = cross_validated(log_probs, labels, seed=0, protocol="paper").metrics
    other = cross_validated(sharpened, labels, seed=0, protocol="paper").metrics
    for name in ("accuracy", "cll", "brier_calibrated"):
        assert one[name] == pytest.approx(other[name], abs=1e-6)
    # Each half's temperature scales, so their mean does.
    assert other["temperature"] * temperature == pytest.approx(one["temperature"], rel=1e-4)


def test_few_images_are_calibrated_by_nine_tenths_of_them() -> None:
    log_probs, labels = predictions(images=40)
    before = cross_validated(log_probs, labels, seed=2).per_image["cll"]
    spoilt = log_probs.copy()
    spoilt[7] = spoilt[7][::-1]
    after = cross_validated(spoilt, labels, seed=2).per_image["cll"]
    # Its own tenth keeps its temperature, which the image had no part in; all others change.
    assert np.isclose(after, before, atol=1e-6).sum() == 3
    assert after[7] != before[7]


@pytest.mark.parametrize("images", [30, 60, 100, 300])
@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_calibrated_is_never_materially_worse(images: int, sharpness: float) -> None:
    """Nearly always right, as networks are: the likeliest temperature is often at its limit.

    To learn one number from n images costs about 1/(2 n), whatever it is.
    """
    lost: dict[str, list[float]] = {"paper": [], "standard": []}
    for seed in range(30):
        generator = np.random.default_rng(seed)
        true = log_softmax(4 * generator.normal(size=(images, 4)), axis=1)
        labels = (generator.random((images, 1)) > np.exp(true).cumsum(axis=1)[:, :-1]).sum(axis=1)
        log_probs = log_softmax(sharpness * true, axis=1)
        for protocol, all_lost in lost.items():
            found = cross_validated(log_probs, labels, seed=0, protocol=protocol).metrics
            all_lost.append(found["log_likelihood"] - found["cll"])
    assert np.mean(lost["standard"]) < 1 / images
    assert max(lost["standard"]) < 0.06
    assert np.mean(lost["standard"]) <= np.mean(lost["paper"]) + 0.002


@pytest.mark.parametrize("sharpness", [0.5, 1.0, 2.0])
def test_from_5000_images_on_the_figures_are_the_papers(sharpness: float) -> None:
    log_probs, labels = predictions(images=5000)
    log_probs = log_softmax(sharpness * log_probs, axis=1)
    ours, paper = (
        cross_validated(log_probs, labels, seed=0, protocol=protocol).metrics
        for protocol in ("standard", "paper")
    )
    assert ours == paper
    fewer, papers = (
        cross_validated(log_probs[1:], labels[1:], seed=0, protocol=protocol).metrics
        for protocol in ("standard", "paper")
    )
    for name in ("cll", "accuracy", "log_likelihood", "brier", "brier_calibrated"):
        assert fewer[name] == pytest.approx(papers[name], abs=1e-4)


def test_an_unknown_protocol_is_refused() -> None:
    refused("unknown protocol 'papers'", cross_validated, *predictions(), seed=0, protocol="papers")


def test_weights_count_as_repeated_images() -> None:
    log_probs, labels = predictions(images=60)
    weights = np.random.default_rng(0).integers(1, 4, 60)
    weighted = cross_validated(log_probs, labels, seed=0, weights=weights.astype(float))
    cll = (weighted.per_image["cll"] * weights).sum() / weights.sum()
    assert weighted.metrics["cll"] == pytest.approx(cll)
    right = np.repeat(weighted.per_image["accuracy"], weights).mean()
    assert weighted.metrics["accuracy"] == pytest.approx(right)


@given(st.permutations(range(4)))
@settings(max_examples=10)
def test_the_names_of_the_classes_do_not_matter(order: list[int]) -> None:
    log_probs, labels = predictions()
    renamed = np.argsort(order)[labels]
    one = cross_validated(log_probs, labels, seed=0).metrics
    other = cross_validated(log_probs[:, order], renamed, seed=0).metrics
    assert one == pytest.approx(other, abs=1e-9)


def test_groups_stay_in_one_half() -> None:
    log_probs, labels = predictions(images=60)
    groups = np.repeat(np.arange(6), 10)
    found = cross_validated(log_probs, labels, seed=0, groups=groups)
    expected = [
        score.tolist() for _, score in halvings(60, 5, 0, groups)
    ]  # whole groups on either side
    assert all(len({groups[i] for i in score}) * 10 == len(score) for score in expected)
    assert found.metrics != cross_validated(log_probs, labels, seed=0).metrics


def test_metrics_are_means_over_images_where_groups_make_halves_unequal() -> None:
    log_probs, labels = predictions(images=60)
    groups = np.r_[np.zeros(40, int), np.arange(1, 21)]
    found = cross_validated(log_probs, labels, seed=0, groups=groups)
    for name, values in found.per_image.items():
        assert found.metrics[name] == pytest.approx(values.mean())


def test_is_repeatable_and_follows_the_seed() -> None:
    log_probs, labels = predictions()
    one, again, other = (cross_validated(log_probs, labels, seed=seed) for seed in (0, 0, 1))
    assert one.metrics == again.metrics
    assert one.metrics != other.metrics


def test_certain_and_wrong_is_finite() -> None:
    log_probs = np.full((8, 2), -np.inf)
    log_probs[:, 0] = 0.0
    labels = np.array([0, 0, 0, 0, 0, 0, 0, 1])
    found = cross_validated(log_probs, labels, seed=0)
    assert all(np.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize(
    ("shape", "labels", "message"),
    [
        ((5, 3), 4, r"got \[5, 3\] and \[4\]"),
        ((5,), 5, "expected log-probabilities"),
        ((3, 2), 3, "at least 4 images"),
    ],
)
def test_refuses_what_cannot_be_scored(shape: tuple[int, ...], labels: int, message: str) -> None:
    refused(message, cross_validated, np.zeros(shape), np.zeros(labels, dtype=np.int64), seed=0)


def test_cross_calibrated_is_better_than_what_it_was_given() -> None:
    log_probs, labels = predictions(images=400)
    calibrated = cross_calibrated(log_probs, labels, seed=0)
    np.testing.assert_allclose(np.exp(calibrated).sum(axis=1), 1)
    assert log_likelihood(calibrated, labels) > log_likelihood(log_probs, labels) + 0.05


@pytest.mark.parametrize("balanced", [False, True])
def test_reliability_bins_hold_the_ece(balanced: bool) -> None:
    log_probs, labels = predictions(images=300)
    weights = np.where(labels == 0, 5.0, 1.0) if balanced else None
    bins = reliability_bins(log_probs, labels, weights)
    assert len(bins) == 15
    assert sum(one.share for one in bins) == pytest.approx(1)
    gap = sum(one.share * abs(one.accuracy - one.confidence) for one in bins)
    assert gap == pytest.approx(ece(log_probs, labels, weights), abs=1e-12)
    for place, one in enumerate(bins):
        assert place / 15 <= one.confidence <= (place + 1) / 15


def test_an_empty_bin_weighs_nothing() -> None:
    log_probs = np.log(np.array([[0.9, 0.1], [0.1, 0.9]]))
    bins = reliability_bins(log_probs, np.array([0, 0]))
    filled = [one for one in bins if one.share]
    assert len(filled) == 1
    assert (filled[0].share, filled[0].accuracy) == (1.0, 0.5)
    assert all(one.accuracy == 0 for one in bins if not one.share)


def test_prefixes_take_entries_one_by_one_and_no_more_than_there_are() -> None:
    entries = (predictions(seed=k)[0] for k in range(10**6))
    assert len(list(prefix_log_probs(entries, [1, 3]))) == 2
    four = np.zeros((4, 5, 2))
    for lengths in ([0], [2, 2], [3, 1]):
        refused("expected rising lengths", list, prefix_log_probs(four, lengths))
    refused("expected at least 5 predictions, got 4", list, prefix_log_probs(four, [5]))


def test_temperatures_weigh_images() -> None:
    log_probs, labels = predictions(images=300)
    weights = np.where(labels == 0, 5.0, 1.0)
    weighed, even = (
        cross_calibrated(log_probs, labels, seed=0, weights=one) for one in (weights, None)
    )
    assert not np.allclose(weighed, even)
