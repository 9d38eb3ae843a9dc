from pathlib import Path

import numpy as np
import pytest
from tests.oracles.plain_search import Array, random_pool
from tests.support import refused

from relook.errors import RelookError
from relook.numerics.calibration import calibrated_log_likelihood
from relook.selection import SearchResult, greedy_search, plan, selection_needs
from relook.selection.greedy import extended_mean, floored_log, search_with
from relook.selection.kernels.compact import CompactScorer
from relook.selection.kernels.scorer import CompiledScorer
from relook.selection.plan import classes_to_keep


def searched(log_probs: Array, labels: Array, length: int, threads: int = 1) -> SearchResult:
    with CompactScorer(log_probs, labels, threads=threads) as scorer:
        return search_with(scorer, log_probs, length)


def pool_of_many_classes(seed: int = 0, candidates: int = 40) -> tuple[Array, Array]:
    return random_pool(seed, candidates, 150, 300, skill=4.0, sharpness=2.5)


@pytest.mark.parametrize("seed", range(2))
def test_all_scores_are_exact_and_no_step_falls_short_of_the_exact_search(seed: int) -> None:
    log_probs, labels = pool_of_many_classes(seed)
    result = searched(log_probs, labels, 6)
    alone = [calibrated_log_likelihood(each, labels)[0] for each in log_probs]
    assert result.picks[0] == int(np.argmax(alone))
    mean, known = np.zeros(log_probs.shape[1:]), 1.0
    with CompiledScorer(log_probs, labels) as exact:
        for step, pick in enumerate(result.picks, start=1):
            best = exact.best(mean, step, known)
            assert best.score - 1e-4 <= result.scores[step - 1] <= best.score + 1e-12
            mean = extended_mean(mean, log_probs[pick], step)
            score, known = calibrated_log_likelihood(floored_log(mean), labels)
            assert result.scores[step - 1] == pytest.approx(score, abs=1e-11)
            assert result.temperatures[step - 1] == pytest.approx(known, rel=1e-6)


def test_threads_and_resuming_change_nothing() -> None:
    log_probs, labels = pool_of_many_classes(6)
    one = searched(log_probs, labels, 5)
    assert searched(log_probs, labels, 5, threads=2) == one
    assert len(set(one.picks)) > 1
    big = np.repeat(log_probs, 2, axis=0)
    whole = greedy_search(big, labels, 5)
    assert greedy_search(big, labels, 5, start=whole.picks[:2]) == whole
    assert whole.scores == one.scores


def test_half_precision_files_are_mapped(tmp_path: Path) -> None:
    log_probs, labels = pool_of_many_classes(7, candidates=50)
    np.save(tmp_path / "half.npy", log_probs.astype(np.float16))
    mapped = np.load(tmp_path / "half.npy", mmap_mode="r")
    result = greedy_search(mapped, labels, 3)
    assert result == greedy_search(np.array(mapped), labels, 3)
    assert result.scores[-1] == pytest.approx(
        greedy_search(log_probs, labels, 3).scores[-1], abs=0.01
    )


def test_bad_rows_are_found_while_reading() -> None:
    log_probs, labels = pool_of_many_classes(8, candidates=50)
    log_probs[31, 77, 5] = np.nan
    refused("got nan at candidate 31, image 77", greedy_search, log_probs, labels, 2)
    log_probs[31, 77, 5] = -1e-3
    refused(r"sum to 1.* candidate 31, image 77", greedy_search, log_probs, labels, 2)


def test_memory_decides_how_many_classes_are_kept() -> None:
    shape = (900, 25_000, 1_000)
    assert selection_needs(shape) < 16e9
    assert classes_to_keep(shape, 16 << 30) == 31
    kept = classes_to_keep(shape, 3 << 30)
    assert 8 <= kept < 31
    assert selection_needs(shape, kept) <= 3 << 30
    refused(r"needs 2\.\d GB of memory, got a limit of 1\.0 GB", classes_to_keep, shape, 10**9)


def test_what_does_not_fit_is_refused_before_it_starts() -> None:
    log_probs, labels = random_pool(10, 60, 900, 40)
    with pytest.raises(RelookError, match=r"needs 15\.9 MB of memory, got a limit of 1\.0 MB"):
        greedy_search(log_probs, labels, 2, memory=10**6)


def test_fewer_kept_classes_still_give_exact_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    log_probs, labels = pool_of_many_classes(9)
    monkeypatch.setattr(plan, "_KEPT", 10)
    result = searched(log_probs, labels, 3)
    mean = np.exp(log_probs[list(result.picks)].astype(np.float64)).mean(axis=0)
    expected = calibrated_log_likelihood(floored_log(mean), labels)[0]
    assert result.scores[-1] == pytest.approx(expected, abs=1e-11)
