"""The pool at a view temperature: the same selection in memory and from disk."""

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax
from tests.oracles.plain_search import plain_search, random_pool
from tests.support import refused

from relook.selection import greedy_search
from relook.selection.kernels.compact import CompactScorer
from relook.selection.predictions import RowReader, TemperedMap, readable, tempered_pool


def test_the_usual_average_leaves_predictions_as_they_are() -> None:
    log_probs, _ = random_pool(0, 3, 5, 4)
    assert tempered_pool(log_probs, 1.0, None) is log_probs


def test_views_are_softened_before_they_are_averaged() -> None:
    log_probs, _ = random_pool(0, 3, 50, 4)
    expected = log_softmax(log_probs.astype(np.float64) / 3, axis=2)
    assert np.allclose(tempered_pool(log_probs, 3.0, None), expected, atol=1e-6)


def test_what_is_not_normalised_is_refused_and_not_hidden() -> None:
    log_probs, _ = random_pool(0, 3, 50, 4)
    refused("sum to 1", tempered_pool, log_probs - 1, 3.0, None)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_map_of_a_file_is_softened_where_it_is_read(tmp_path: Path, dtype: type) -> None:
    log_probs, labels = random_pool(1, 20, 60, 220)
    np.save(tmp_path / "pool.npy", log_probs.astype(dtype))
    mapped = tempered_pool(np.load(tmp_path / "pool.npy", mmap_mode="r"), 2.0, None)
    assert isinstance(mapped, TemperedMap)
    held = tempered_pool(log_probs.astype(dtype), 2.0, None)
    reader = RowReader(mapped)
    assert np.array_equal(reader.part(7, slice(10, 30)), readable(held[7, 10:30]))
    reader.close()
    found = [_first(pool, labels) for pool in (mapped, held)]
    assert found[0] == found[1]


def _first(pool: object, labels: object) -> object:
    with CompactScorer(pool, labels) as scorer:  # type: ignore[arg-type]
        return scorer.best(np.zeros((60, 220)), 1, 1.0)


def test_a_given_temperature_is_taken_and_the_picks_are_the_plain_twins() -> None:
    log_probs, labels = random_pool(2, 8, 80, 4)
    found = greedy_search(log_probs, labels, 3, defaults=range(8), view_temperature=4.0)
    assert found.view_temperature == 4.0
    picks, scores = plain_search(log_softmax(log_probs / 4, axis=2), labels, 1)
    alone = greedy_search(tempered_pool(log_probs, 4.0, None), labels, 1)
    assert list(alone.picks) == picks
    assert alone.scores[0] == pytest.approx(scores[0], abs=1e-6)


def test_a_greedy_selection_takes_the_temperature_that_is_given() -> None:
    log_probs, labels = random_pool(3, 8, 80, 4)
    found = greedy_search(log_probs, labels, 3, view_temperature=2.0)
    assert (found.view_temperature, greedy_search(log_probs, labels, 3).view_temperature) == (2, 1)
    averaged = tempered_pool(log_probs, 2.0, None)
    assert found.picks == greedy_search(averaged, labels, 3).picks
