"""What every scorer promises: the plain one's pick, its score and its temperature."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
from tests.oracles.plain_search import Array, random_pool

from relook.selection.conservative import ConservativeScorer, hard_rows
from relook.selection.greedy import Pick, PlainScorer, Scorer
from relook.selection.kernels.compact import CompactScorer
from relook.selection.kernels.scorer import CompiledScorer
from relook.selection.objectives import OBJECTIVES

CANDIDATES, IMAGES, CLASSES = 30, 150, 60
Opening = Callable[[Array, Array, Array | None], AbstractContextManager[Scorer]]


def plain(log_probs: Array, labels: Array, weights: Array | None) -> PlainScorer:
    return PlainScorer(log_probs, labels, OBJECTIVES["cll"], weights)


def without_threshold(
    log_probs: Array, labels: Array, weights: Array | None
) -> AbstractContextManager[Scorer]:
    """A conservative scorer that takes whatever is better than its default at all."""
    scorer = plain(log_probs, labels, weights)
    even = np.ones(len(labels)) if weights is None else weights
    return nullcontext(
        ConservativeScorer(scorer, hard_rows(labels), log_probs, even, scorer, [0], [0.0])
    )


SCORERS: dict[str, Opening] = {
    "plain": lambda *given: nullcontext(plain(*given)),
    "compiled": CompiledScorer,
    "compact": CompactScorer,
    "conservative, threshold 0": without_threshold,
}
every_scorer = pytest.mark.parametrize("opening", SCORERS.values(), ids=SCORERS)


def mean_of(log_probs: Array, candidates: list[int]) -> Array:
    return np.asarray(np.exp(log_probs[candidates].astype(np.float64)).mean(axis=0))


def assert_same(found: Pick, expected: Pick) -> None:
    assert found.candidate == expected.candidate
    assert found.score == pytest.approx(expected.score, abs=1e-11)
    assert found.temperature == pytest.approx(expected.temperature, rel=1e-6)


@every_scorer
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_finds_the_plain_ones_pick_and_score(opening: Opening, kind: type, weighted: bool) -> None:
    log_probs, labels = random_pool(3, CANDIDATES, IMAGES, CLASSES, sharpness=3.0)
    log_probs = log_probs.astype(kind)
    weights = np.random.default_rng(4).uniform(0, 2, IMAGES) if weighted else None
    reference = plain(log_probs, labels, weights)
    with opening(log_probs, labels, weights) as scorer:
        chosen: list[int] = []
        mean, temperature = np.zeros((IMAGES, CLASSES)), 1.0
        for step in range(1, 5):
            expected = reference.best(mean, step, temperature)
            assert_same(scorer.best(mean, step, temperature), expected)
            last = scorer.only(CANDIDATES - 1, mean, step, temperature)
            assert_same(last, reference.only(CANDIDATES - 1, mean, step, temperature))
            chosen.append(expected.candidate)
            mean, temperature = mean_of(log_probs, chosen), expected.temperature
    assert len(set(chosen)) > 1


@every_scorer
def test_gives_a_tie_to_the_first(opening: Opening) -> None:
    log_probs, labels = random_pool(5, 8, IMAGES, CLASSES)
    with opening(np.repeat(log_probs, 3, axis=0), labels, None) as scorer:
        first = scorer.best(np.zeros((IMAGES, CLASSES)), 1, 1.0).candidate
        second = scorer.best(mean_of(log_probs, [2, 4]), 3, 1.0).candidate
    assert (first % 3, second % 3) == (0, 0)


@every_scorer
def test_answers_alike_when_asked_again_and_leaves_its_inputs_alone(opening: Opening) -> None:
    log_probs, labels = random_pool(6, CANDIDATES, IMAGES, CLASSES)
    mean = mean_of(log_probs, [1, 2])
    before = log_probs.tobytes(), labels.tobytes(), mean.tobytes()
    with opening(log_probs, labels, None) as scorer:
        found = [scorer.best(mean, 3, 1.2) for _ in range(2)]
    assert found[0] == found[1]
    assert (log_probs.tobytes(), labels.tobytes(), mean.tobytes()) == before
