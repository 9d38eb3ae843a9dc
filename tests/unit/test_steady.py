"""Steady selection: defaults unless a candidate proves better, and how careful to be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp

from relook.errors import RelookError
from relook.objectives import OBJECTIVES
from relook.selection import greedy_search
from relook.selection.greedy import PlainScorer, search_with
from relook.selection.steady import CAUTIONS, SteadyScorer, choose_caution, log_likelihoods

Floats = NDArray[np.float64]


def _pool(
    candidates: int, images: int, worth: dict[int, float], noise: float = 1.0
) -> tuple[Floats, NDArray[np.int64]]:
    """Candidates of equal worth but for luck, except those whose logit for the label is raised."""
    rng = np.random.default_rng(5)
    labels = rng.integers(4, size=images)
    logits = rng.normal(size=(1, images, 4)) + noise * rng.normal(size=(candidates, images, 4))
    logits[:, np.arange(images), labels] += 1.5
    for candidate, more in worth.items():
        logits[candidate, np.arange(images), labels] += more
    return logits - np.logaddexp.reduce(logits, axis=2, keepdims=True), labels


def _steady(log_probs: Floats, labels: NDArray[np.int64], caution: float) -> tuple[int, ...]:
    scorer = PlainScorer(log_probs, labels, OBJECTIVES["cll"], None)
    even = np.ones(len(labels))
    steady = SteadyScorer(scorer, log_probs, labels, even, range(6), caution)
    return search_with(steady, log_probs, 6).picks


def test_without_evidence_the_defaults_are_taken_in_order() -> None:
    log_probs, labels = _pool(60, 300, {})
    assert _steady(log_probs, labels, 4.0) == (0, 1, 2, 3, 4, 5)
    assert _steady(log_probs, labels, math.inf) == (0, 1, 2, 3, 4, 5)


def test_without_caution_it_is_the_greedy_search() -> None:
    log_probs, labels = _pool(60, 300, {})
    assert _steady(log_probs, labels, 0.0) == greedy_search(log_probs, labels, 6).picks


def test_a_candidate_that_is_really_better_is_picked_in_spite_of_caution() -> None:
    log_probs, labels = _pool(60, 300, {41: 3.0})
    assert _steady(log_probs, labels, 3.0)[0] == 41


def test_the_first_pick_is_the_one_that_a_paired_test_allows() -> None:
    log_probs, labels = _pool(30, 200, {17: 0.8})
    first = greedy_search(log_probs, labels, 1)
    scorer = PlainScorer(log_probs, labels, OBJECTIVES["cll"], None)
    default = scorer.only(0, np.zeros(log_probs.shape[1:]), 1, 1.0)
    best, other = (
        log_likelihoods(np.exp(log_probs[pick]), labels, temperature)
        for pick, temperature in ((first.picks[0], first.temperatures[0]), (0, default.temperature))
    )
    images = len(labels)
    # The test's error has n − 1 in it, ours n.
    statistic = float(ttest_1samp(best - other, 0).statistic) * math.sqrt(images / (images - 1))
    assert _steady(log_probs, labels, statistic - 1e-6)[0] == first.picks[0]
    assert _steady(log_probs, labels, statistic + 1e-6)[0] == 0


def test_folds_choose_caution_where_there_is_only_luck() -> None:
    log_probs, labels = _pool(60, 300, {})
    found = greedy_search(log_probs, labels, 6, defaults=range(10))
    assert found.caution in CAUTIONS[2:]


def test_folds_do_not_stop_what_is_worth_more() -> None:
    log_probs, labels = _pool(60, 300, dict.fromkeys(range(20, 40), 1.0))
    found = greedy_search(log_probs, labels, 6, defaults=range(10))
    assert set(found.picks) <= set(range(20, 40))


def test_the_choice_is_the_same_by_compiled_kernels() -> None:
    from relook.selection.fast import FastScorer

    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    even = np.ones(len(labels))
    chosen = {
        kind: choose_caution(kind, log_probs, labels, even, 5, range(8))
        for kind in (
            lambda weights: FastScorer(log_probs, labels, weights),
            lambda weights: _Open(PlainScorer(log_probs, labels, OBJECTIVES["cll"], weights)),
        )
    }
    assert len(set(chosen.values())) == 1


class _Open:
    """A scorer that needs no closing, as a context manager."""

    def __init__(self, scorer: PlainScorer) -> None:
        self.scorer = scorer

    def __enter__(self) -> PlainScorer:
        return self.scorer

    def __exit__(self, *error: object) -> None: ...


def test_a_continued_steady_search_ends_the_same() -> None:
    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    whole = greedy_search(log_probs, labels, 6, defaults=range(10))
    assert greedy_search(log_probs, labels, 6, start=whole.picks[:3], defaults=range(10)) == whole


def test_another_objective_is_refused() -> None:
    log_probs, labels = _pool(5, 20, {})
    with pytest.raises(RelookError, match="steady selection needs the objective cll"):
        greedy_search(log_probs, labels, 2, "accuracy", defaults=[0])


def test_the_defaults_begin_again_once_all_are_in() -> None:
    log_probs, labels = _pool(60, 300, {})
    scorer = PlainScorer(log_probs, labels, OBJECTIVES["cll"], None)
    steady = SteadyScorer(scorer, log_probs, labels, np.ones(len(labels)), (3, 1), math.inf)
    assert search_with(steady, log_probs, 5).picks == (3, 1, 3, 1, 3)
