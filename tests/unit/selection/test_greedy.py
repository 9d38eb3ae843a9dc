from typing import Any

import numpy as np
import pytest
from tests.oracles.plain_search import Array, random_pool
from tests.support import refused

from relook.numerics.calibration import calibrated_log_likelihood, mean_log_probs
from relook.numerics.metrics import accuracy
from relook.selection import SearchResult, check_predictions, greedy, greedy_search
from relook.selection.greedy import first_best, score_candidates
from relook.selection.objectives import OBJECTIVES, class_weights


def test_temperatures_are_fitted_by_cll_whatever_the_objective() -> None:
    log_probs, labels = random_pool(2, 8, 60, 4)
    result = greedy_search(log_probs, labels, 3, "accuracy")
    mean = mean_log_probs(log_probs[list(result.picks)])
    assert result.scores[-1] == pytest.approx(accuracy(mean, labels))
    assert result.temperatures[-1] == pytest.approx(calibrated_log_likelihood(mean, labels)[1])


@pytest.mark.parametrize("objective", list(OBJECTIVES))
def test_each_objective_beats_its_first_pick_or_equals_it_by_repeating(objective: str) -> None:
    log_probs, labels = random_pool(3, 10, 70, 3)
    result = greedy_search(log_probs, labels, 5, objective)
    best_alone = max(OBJECTIVES[objective].score(each, labels, None) for each in log_probs)
    assert result.scores[0] == pytest.approx(best_alone, abs=1e-9)
    assert max(result.scores) >= result.scores[0]


def test_repeats_are_allowed() -> None:
    good, labels = random_pool(4, 1, 50, 4, skill=3.0)
    bad = np.roll(good, 1, axis=-1)
    result = greedy_search(np.concatenate([bad, good]), labels, 4)
    assert result.picks == (1, 1, 1, 1)
    np.testing.assert_allclose(result.scores, result.scores[0], atol=1e-12)


def test_a_tie_is_a_difference_of_at_most_1e_9() -> None:
    assert first_best(np.array([-1.0, -0.5 - 0.9e-9, -0.5])) == 1
    assert first_best(np.array([-1.0, -0.5 - 1.1e-9, -0.5])) == 2


@pytest.mark.parametrize("objective", list(OBJECTIVES))
@pytest.mark.parametrize(
    ("images", "classes", "sharpness"), [(1, 2, 1.0), (37, 3, 0.01), (301, 10, 30.0), (9, 130, 2.0)]
)
def test_scores_do_not_depend_on_blocks(
    objective: str, images: int, classes: int, sharpness: float
) -> None:
    log_probs, labels = random_pool(6, 23, images, classes, sharpness=sharpness)
    mean = np.exp(log_probs[:3].astype(np.float64)).mean(axis=0)
    one = 5 * mean.nbytes
    every = [
        score_candidates(log_probs, labels, mean, 4, OBJECTIVES[objective], None, 1.3, size)
        for size in (1, one, 2 * one, 7 * one, 1 << 28)
    ]
    for scores in every[1:]:
        assert scores.tobytes() == every[0].tobytes()


def test_a_search_goes_on_from_its_own_first_picks() -> None:
    log_probs, labels = random_pool(7, 15, 60, 4)
    whole = greedy_search(log_probs, labels, 6)
    for kept in (1, 3, 6):
        assert greedy_search(log_probs, labels, 6, start=whole.picks[:kept]) == whole


def test_first_picks_are_kept_and_counted() -> None:
    log_probs, labels = random_pool(8, 15, 60, 4)
    result = greedy_search(log_probs, labels, 3, start=(14, 14))
    assert result.picks[:2] == (14, 14)
    assert len(result.picks) == 3


@pytest.mark.parametrize("compiled_from", [0, 1 << 62])
def test_certain_and_uniform_predictions_have_stated_temperatures(
    compiled_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greedy, "COMPILED_FROM", compiled_from)
    uniform = np.full((3, 10, 4), np.log(0.25), dtype=np.float32)
    labels = np.arange(10) % 4
    result = greedy_search(uniform, labels, 2)
    assert (result.picks, result.temperatures) == ((0, 0), (1.0, 1.0))
    assert result.scores == pytest.approx([np.log(0.25)] * 2)
    with np.errstate(divide="ignore"):
        certain = np.log(np.eye(4, dtype=np.float32)[labels])[None]
    result = greedy_search(certain, labels, 2)
    assert result == SearchResult((0, 0), (0.0, 0.0), (0.05, 0.05))


def test_progress_is_told_after_each_step() -> None:
    log_probs, labels = random_pool(9, 4, 30, 3)
    seen: list[tuple[int, int, float]] = []
    result = greedy_search(log_probs, labels, 3, progress=lambda *step: seen.append(step))
    assert seen == [(done, 3, result.scores[done - 1]) for done in (1, 2, 3)]


def test_balanced_search_weighs_each_class_alike() -> None:
    log_probs, labels = random_pool(10, 12, 90, 3)
    labels[:70] = 0
    result = greedy_search(log_probs, labels, 2, balanced=True)
    mean = mean_log_probs(log_probs[list(result.picks)])
    score, temperature = calibrated_log_likelihood(mean, labels, class_weights(labels))
    assert result.scores[-1] == pytest.approx(score, abs=1e-12)
    assert result.temperatures[-1] == pytest.approx(temperature, rel=1e-6)
    assert score != pytest.approx(calibrated_log_likelihood(mean, labels)[0], abs=1e-4)


def test_a_callable_is_an_objective() -> None:
    log_probs, labels = random_pool(11, 9, 50, 3)
    named = greedy_search(log_probs, labels, 4, "accuracy")
    assert greedy_search(log_probs, labels, 4, accuracy) == named
    refused(
        "objective accuracy: .* cannot be balanced .* weigh the classes inside",
        greedy_search,
        log_probs,
        labels,
        4,
        accuracy,
        balanced=True,
    )


def test_inputs_are_left_alone_and_any_integer_labels_do() -> None:
    log_probs, labels = random_pool(12, 5, 20, 3)
    before = log_probs.tobytes(), labels.tobytes()
    result = greedy_search(log_probs, labels.astype(np.uint8), 3)
    assert (log_probs.tobytes(), labels.tobytes()) == before
    assert isinstance(result, SearchResult)
    assert result == greedy_search(log_probs, labels, 3)


def changed(log_probs: Array, value: float) -> Array:
    log_probs = log_probs.copy()
    log_probs[2, 7, 1] = value
    return log_probs


GOOD, LABELS = random_pool(13, 4, 20, 3)


@pytest.mark.parametrize(
    ("log_probs", "labels", "message"),
    [
        (GOOD[0], LABELS, r"expected a float array \[candidate, image, class\].*\(20, 3\)"),
        (GOOD.astype(np.int64), LABELS, "float array"),
        (GOOD[:0], LABELS, "at least 1 candidate.* got 0, 20 and 3"),
        (GOOD[:, :0], LABELS[:0], "got 4, 0 and 3"),
        (GOOD[..., :1], LABELS, "got 4, 20 and 1"),
        (changed(GOOD, np.nan), LABELS, "got nan at candidate 2, image 7"),
        (changed(GOOD, np.inf), LABELS, "got inf at candidate 2, image 7"),
        (changed(GOOD, 0.002), LABELS, "at most 0, got 0.002.* at candidate 2, image 7"),
        (changed(GOOD, -np.inf), LABELS, "sum to 1.*candidate 2, image 7"),
        (np.full_like(GOOD, -np.inf), LABELS, "got a sum of 0 at candidate 0, image 0"),
        (np.exp(GOOD), LABELS, "log_softmax"),
        (GOOD, LABELS[:-1], r"expected 20 whole numbers.*\(19,\)"),
        (GOOD, LABELS.astype(np.float64), "whole numbers.*float64"),
        (GOOD, LABELS > 0, "whole numbers.*bool"),
        (GOOD, LABELS - 1, "expected 0 to 2.*got -1 at image"),
        (GOOD, LABELS + 1, "expected 0 to 2.*got 3 at image"),
    ],
)
@pytest.mark.parametrize("compiled_from", [0, 1 << 62])
def test_bad_predictions_are_refused_in_one_line(
    log_probs: Array,
    labels: Array,
    message: str,
    compiled_from: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(greedy, "COMPILED_FROM", compiled_from)
    refused(message, greedy_search, log_probs, labels, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length of at least 1, got 0"),
        ({"length": True}, "got True"),
        ({"length": 2.5}, "got 2.5"),
        ({"length": 1, "start": (0, 1)}, "at most 1 first picks, got 2"),
        ({"length": 2, "start": (4,)}, "from 0 to 3, got 4"),
        ({"length": 2, "objective": "cl"}, "unknown objective 'cl': did you mean 'cll'"),
    ],
)
def test_bad_settings_are_refused(arguments: dict[str, Any], message: str) -> None:
    refused(message, greedy_search, GOOD, LABELS, **arguments)


def test_rounding_is_accepted() -> None:
    check_predictions(GOOD + np.float32(9e-4), LABELS)
