from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.plain_search import (
    Array,
    Score,
    cll_score,
    plain_cll,
    plain_scores,
    plain_search,
    random_pool,
)

from relook.selection import greedy_search

TIE = 5e-9  # what the oracle's own rounding may add to a tie of 1e-9


def mean_ll(log_q: Array, labels: Array) -> float:
    return float(log_q[np.arange(len(labels)), labels].mean())


def share_right(log_q: Array, labels: Array) -> float:
    return float(np.mean(log_q.argmax(axis=1) == labels))


def assert_same_search(
    log_probs: Array, labels: Array, length: int, score: Score, name: str
) -> None:
    result = greedy_search(log_probs, labels, length, name)
    probabilities = np.exp(log_probs.astype(np.float64))
    expected, _ = plain_search(log_probs, labels, length, score)
    for step, pick in enumerate(result.picks):
        prefix = list(result.picks[:step])
        scores = plain_scores(probabilities, labels, prefix, score)
        assert result.scores[step] == pytest.approx(scores[pick], abs=1e-7)
        assert scores[pick] >= max(scores) - TIE
        if prefix == expected[:step] and pick != expected[step]:
            assert abs(scores[pick] - scores[expected[step]]) <= TIE


@given(
    seed=st.integers(0, 2**32 - 1),
    candidates=st.integers(2, 60),
    images=st.integers(1, 40),
    classes=st.integers(2, 100),
    skill=st.floats(0, 8),
    sharpness=st.sampled_from([0.01, 0.5, 1.0, 3.0, 10.0, 40.0]),
    zeros=st.sampled_from([0.0, 0.0, 0.3]),
)
@settings(max_examples=25, deadline=None)
def test_cll_search_is_the_plain_search(
    seed: int,
    candidates: int,
    images: int,
    classes: int,
    skill: float,
    sharpness: float,
    zeros: float,
) -> None:
    log_probs, labels = random_pool(
        seed, candidates, images, classes, skill=skill, sharpness=sharpness, zeros=zeros
    )
    assert_same_search(log_probs, labels, 3, cll_score, "cll")


@pytest.mark.parametrize(("name", "score"), [("ll", mean_ll), ("accuracy", share_right)])
@given(seed=st.integers(0, 2**32 - 1), candidates=st.integers(2, 60), classes=st.integers(2, 100))
@settings(max_examples=40, deadline=None)
def test_other_objectives_are_the_plain_search(
    name: str, score: Score, seed: int, candidates: int, classes: int
) -> None:
    log_probs, labels = random_pool(seed, candidates, 50, classes, zeros=0.1)
    assert_same_search(log_probs, labels, 6, score, name)


def test_a_longer_search_finds_the_oracles_policy_and_temperatures() -> None:
    log_probs, labels = random_pool(1, 25, 200, 10, skill=1.0, sharpness=4.0)
    result = greedy_search(log_probs, labels, 12)
    picks, scores = plain_search(log_probs, labels, 12)
    assert list(result.picks) == picks
    assert len(set(picks)) > 5
    np.testing.assert_allclose(result.scores, scores, atol=1e-9)
    for length, temperature in enumerate(result.temperatures, start=1):
        mean = np.exp(log_probs[picks[:length]].astype(np.float64)).mean(axis=0)
        assert temperature == pytest.approx(plain_cll(np.log(mean), labels)[1], abs=1e-5)
