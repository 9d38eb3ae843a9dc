"""The view temperature: learned where networks are too sure, kept where they are not."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.oracles.plain_search import plain_cll

from relook.numerics.view_temperature import (
    VIEW_TEMPERATURES,
    choose_view_temperature,
    most_probable,
)

Floats = NDArray[np.float64]


def _views(sharpness: float, images: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Views of one truth with noise of their own, from a network that is `sharpness` × too sure."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(images, 5))
    labels = (np.exp(log_softmax(truth, axis=1)).cumsum(axis=1) < rng.random((images, 1))).sum(1)
    return log_softmax(sharpness * (truth + rng.normal(size=(12, images, 5))), axis=2), labels


def test_a_network_that_is_too_sure_gets_a_high_one_and_a_mild_one_does_not() -> None:
    assert choose_view_temperature(*_views(6.0, 1000)) >= 4
    assert choose_view_temperature(*_views(0.4, 1000)) == 1


def test_it_is_the_maximum_that_a_plain_twin_finds() -> None:
    log_probs, labels = _views(3.0, 400)
    _, plain = plain_cll(log_probs[0], labels)
    posterior = []
    for kappa in VIEW_TEMPERATURES:
        views = np.exp(log_softmax(log_probs / kappa, axis=2))
        cll = [plain_cll(np.log(views[:k].mean(axis=0)), labels)[0] for k in (2, 3, 5, 10)]
        distance = np.log(kappa) - np.log(max(1.0, plain))
        posterior.append(400 * np.mean(cll) - distance**2 / 2)
    assert choose_view_temperature(log_probs, labels) == VIEW_TEMPERATURES[np.argmax(posterior)]


@pytest.mark.parametrize(("plain", "expected"), [(0.3, 1.0), (1.0, 1.0), (2.1, 2.0)])
def test_without_evidence_it_is_the_plain_predictions_temperature(
    plain: float, expected: float
) -> None:
    assert most_probable([-0.2] * len(VIEW_TEMPERATURES), 5000, plain) == expected


def test_images_of_one_group_are_little_evidence() -> None:
    scores = [-0.2 - 0.001 * abs(np.log(kappa / 8)) for kappa in VIEW_TEMPERATURES]
    assert most_probable(scores, 10_000, 1.0) == 8.0
    assert most_probable(scores, 10, 1.0) == 1.0
    log_probs, labels = _views(3.0, 300)
    copies = np.repeat(log_probs, 4, axis=1), np.repeat(labels, 4)
    groups = np.repeat(np.arange(300), 4)
    assert choose_view_temperature(*copies, groups=groups) == choose_view_temperature(
        log_probs, labels
    )


def test_a_single_view_has_nothing_to_average() -> None:
    log_probs, labels = _views(0.5, 50)
    assert choose_view_temperature(log_probs[:1], labels) == 1.0
