"""Soft targets: calibrated averages, which one is trusted, and how labels count with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax

from relook.numerics.calibration import calibrated_log_likelihood
from relook.selection.conservative import (
    SoftTargets,
    average_of,
    choose_soft_targets,
    make_soft_targets,
    soft_rows,
)

Floats = NDArray[np.float64]


def _average(seed: int, images: int = 50, classes: int = 5) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return softmax(2 * rng.normal(size=(images, classes)), axis=1), rng.integers(
        classes, size=images
    )


def test_soft_targets_are_the_average_at_the_temperature_that_fits_the_labels() -> None:
    average, labels = _average(0)
    found = make_soft_targets("pool", average, labels, np.ones(50))
    score, temperature = calibrated_log_likelihood(np.log(average), labels)
    np.testing.assert_allclose(found.targets, softmax(np.log(average) / temperature, axis=1))
    assert found.log_likelihoods.mean() == pytest.approx(score)


def test_averages_are_of_probabilities_and_of_some_images_if_said() -> None:
    log_probs = np.log(np.stack([_average(seed)[0] for seed in range(4)]))
    np.testing.assert_allclose(average_of(log_probs, (1, 3)), np.exp(log_probs[[1, 3]]).mean(0))
    some = np.arange(50) % 3 == 0
    np.testing.assert_allclose(
        average_of(log_probs, (0, 0, 2), some), np.exp(log_probs[[0, 0, 2]])[:, some].mean(0)
    )


def test_later_targets_must_be_better_by_a_standard_error() -> None:
    labels = np.zeros(100, np.int64)
    base = np.tile([0.5, 0.5], (100, 1))
    noisy, sure = base.copy(), base.copy()
    noisy[:, 0] = np.where(np.arange(100) % 2, 0.9, 0.29)  # a gain of 0.02 ± 0.06
    sure[:, 0] = 0.55
    first = SoftTargets("first", base, labels)
    assert choose_soft_targets([first, SoftTargets("noisy", noisy, labels)], np.ones(100)) is first
    assert (
        choose_soft_targets([first, SoftTargets("sure", sure, labels)], np.ones(100)).name == "sure"
    )


@given(seed=st.integers(0, 1000), images=st.sampled_from([1, 7, 600, 2400]))
@settings(deadline=None, max_examples=30)
def test_rows_share_each_image_between_its_likely_classes(seed: int, images: int) -> None:
    average, labels = _average(seed, images, 8)
    rows = soft_rows(SoftTargets("pool", average, labels), images)
    np.testing.assert_allclose(np.bincount(rows.images, rows.shares), np.ones(images))
    assert len({*zip(rows.images.tolist(), rows.labels.tolist(), strict=True)}) == len(rows.images)
    trust = images / (images + 600)
    targets = (1 - trust) * average
    targets[np.arange(images), labels] += trust
    kept = targets[rows.images, rows.labels]
    totals = np.bincount(rows.images, kept)
    np.testing.assert_allclose(rows.shares, kept / totals[rows.images])
    assert kept[rows.shares < rows.shares.max()].min(initial=1.0) >= 0.02
    # What is left out is unlikely, or beyond the four likeliest.
    assert np.bincount(rows.images).max() <= 4


def test_an_image_of_which_nothing_is_known_keeps_its_likeliest_class() -> None:
    flat = np.full((2, 1000), 0.001)
    rows = soft_rows(SoftTargets("pool", flat, np.array([3, 9])), 2)
    assert rows.labels.tolist() == [3, 9]
    assert rows.shares.tolist() == [1, 1]
