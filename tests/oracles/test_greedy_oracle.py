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

from relook.selection import SearchResult, greedy_search
from relook.selection.greedy import search_with
from relook.selection.kernels.scorer import CompiledScorer
from relook.selection.objectives import class_weights

TIE = 5e-9  # what the oracle's own rounding may add to a tie of 1e-9


def mean_ll(log_q: Array, labels: Array) -> float:
    return float(log_q[np.arange(len(labels)), labels].mean())


def share_right(log_q: Array, labels: Array) -> float:
    return float(np.mean(log_q.argmax(axis=1) == labels))


def compiled_search(
    log_probs: Array, labels: Array, length: int, *, balanced: bool = False, threads: int = 1
) -> SearchResult:
    """The search as it runs on large problems, whatever the size."""
    weights = class_weights(labels) if balanced else None
    with CompiledScorer(log_probs, labels, weights, threads) as scorer:
        return search_with(scorer, log_probs, length)


def assert_same_search(
    log_probs: Array, labels: Array, length: int, score: Score, name: str
) -> None:
    assert_is_plain_search(
        greedy_search(log_probs, labels, length, name), log_probs, labels, length, score
    )


def assert_is_plain_search(
    result: SearchResult, log_probs: Array, labels: Array, length: int, score: Score
) -> None:
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
    candidates=st.integers(2, 30),
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
    result = compiled_search(log_probs, labels, 3)
    assert_is_plain_search(result, log_probs, labels, 3, cll_score)


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


@given(
    seed=st.integers(0, 2**32 - 1),
    candidates=st.integers(1, 60),
    images=st.integers(1, 200),
    classes=st.sampled_from([2, 5, 10, 40, 100]),
    sharpness=st.sampled_from([0.01, 0.5, 1.0, 3.0, 10.0, 40.0]),
    zeros=st.sampled_from([0.0, 0.3]),
    balanced=st.booleans(),
    doubled=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_compiled_and_plain_searches_agree(
    seed: int,
    candidates: int,
    images: int,
    classes: int,
    sharpness: float,
    zeros: float,
    balanced: bool,
    doubled: bool,
) -> None:
    log_probs, labels = random_pool(
        seed, candidates, images, classes, sharpness=sharpness, zeros=zeros
    )
    log_probs = np.repeat(log_probs, 2, axis=0) if doubled else log_probs
    plain = greedy_search(log_probs, labels, 6, balanced=balanced)
    fast = compiled_search(log_probs, labels, 6, balanced=balanced)
    assert fast.picks == plain.picks
    np.testing.assert_allclose(fast.scores, plain.scores, rtol=0, atol=1e-11)
    np.testing.assert_allclose(fast.temperatures, plain.temperatures, rtol=1e-6)


def test_a_large_search_is_the_plain_one_for_any_number_of_threads() -> None:
    log_probs, labels = random_pool(2, 50, 500, 81, skill=1.0, sharpness=3.0)
    assert log_probs.size > 2_000_000
    one = greedy_search(log_probs, labels, 12, threads=1)
    assert greedy_search(log_probs, labels, 12, threads=2) == one
    assert greedy_search(log_probs, labels, 12, start=one.picks[:5]) == one
    assert greedy_search(log_probs.astype(np.float64), labels, 12).picks == one.picks
    assert len(set(one.picks)) > 5
    probabilities = np.exp(log_probs.astype(np.float64))
    for step in (0, 1, 11):  # the oracle takes a while at this size
        scores = plain_scores(probabilities, labels, list(one.picks[:step]))
        assert one.picks[step] == int(np.argmax(scores))
        assert one.scores[step] == pytest.approx(max(scores), abs=1e-9)
