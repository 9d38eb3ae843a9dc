"""Conservative selection: defaults unless a candidate proves better."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import ttest_1samp
from tests.support import refused

from relook.numerics.calibration import calibrated_log_likelihood, temper
from relook.selection import conservative, greedy_search
from relook.selection.conservative import (
    THRESHOLDS,
    ConservativeScorer,
    Problem,
    conservative_search,
    hard_rows,
    log_likelihoods,
)
from relook.selection.greedy import PlainScorer, Scoring, search_with
from relook.selection.objectives import OBJECTIVES

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


def _picks(
    log_probs: Floats,
    labels: NDArray[np.int64],
    *thresholds: float,
    defaults: Sequence[int] = range(6),
    length: int = 6,
    ordered: int | None = None,
) -> tuple[int, ...]:
    scorer = PlainScorer(log_probs, labels, OBJECTIVES["cll"], None)
    rows, even = hard_rows(labels), np.ones(len(labels))
    scorer_with_defaults = ConservativeScorer(
        scorer, rows, log_probs, even, scorer, defaults, thresholds, ordered=ordered
    )
    return search_with(scorer_with_defaults, log_probs, length).picks


def test_without_evidence_the_defaults_are_taken_in_order() -> None:
    log_probs, labels = _pool(60, 300, {})
    assert _picks(log_probs, labels, 4.0) == (0, 1, 2, 3, 4, 5)
    assert _picks(log_probs, labels, math.inf) == (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("ordered", [0, 2])
def test_defaults_out_of_order_are_the_greedy_choice_of_those_left_after_the_ordered_ones(
    ordered: int,
) -> None:
    log_probs, labels = _pool(20, 200, {})
    picks = list(range(ordered))
    while len(picks) < 4:  # the oracle: every default that is left, scored by itself
        scores = {
            one: calibrated_log_likelihood(
                np.log(np.exp(log_probs[[*picks, one]]).mean(axis=0)), labels
            )[0]
            for one in range(6)
            if one not in picks
        }
        picks.append(max(scores, key=lambda one: scores[one]))
    assert picks != [0, 1, 2, 3]
    assert _picks(log_probs, labels, math.inf, length=4, ordered=ordered) == tuple(picks)
    assert sorted(_picks(log_probs, labels, math.inf, ordered=ordered)) == list(range(6))


@pytest.mark.parametrize(("images", "in_order"), [(299, True), (300, False)])
def test_few_images_keep_the_first_two_defaults(images: int, in_order: bool) -> None:
    log_probs, labels = _pool(6, images, {})
    picks = greedy_search(log_probs, labels, 3, defaults=range(6), in_order=False).picks
    assert (picks[:2] == (0, 1)) is in_order


def test_what_proves_better_than_the_best_default_is_picked_out_of_order_too() -> None:
    log_probs, labels = _pool(60, 300, {41: 3.0})
    assert 41 in _picks(log_probs, labels, 3.0, ordered=2)


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
    assert _picks(log_probs, labels, statistic - 1e-6)[0] == first.picks[0]
    assert _picks(log_probs, labels, statistic + 1e-6)[0] == 0


def test_quasi_random_views_give_the_targets_where_there_is_only_luck() -> None:
    log_probs, labels = _pool(60, 300, {})
    found = greedy_search(log_probs, labels, 6, defaults=range(50))
    assert (found.soft_targets, found.threshold) == ("quasi-random", THRESHOLDS["quasi-random"])


def test_what_is_worth_more_is_found_by_its_soft_targets() -> None:
    log_probs, labels = _pool(60, 300, dict.fromkeys(range(20, 40), 1.0))
    found = greedy_search(log_probs, labels, 6, defaults=range(10))
    assert found.soft_targets == "search"
    assert set(found.picks) <= set(range(20, 40))


def test_an_average_of_what_the_labels_chose_gives_no_targets() -> None:
    log_probs, labels = _pool(600, 300, {})
    alone = [calibrated_log_likelihood(one, labels)[0] for one in log_probs[10:]]
    lucky = log_probs[[*range(10), *(10 + np.argsort(alone)[-20:])]]
    fooled = greedy_search(lucky, labels, 6, defaults=range(10))
    assert fooled.soft_targets == "pool"
    found = greedy_search(lucky, labels, 6, defaults=range(10), preselected=True)
    assert found.soft_targets in ("quasi-random", "search")


def test_scores_and_temperatures_are_those_of_the_labels() -> None:
    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    found = greedy_search(log_probs, labels, 4, defaults=range(10))
    assert found.view_temperature != 1
    averaged = np.exp(temper(log_probs, found.view_temperature))
    for step in range(1, 5):
        mean = averaged[list(found.picks[:step])].mean(axis=0)
        score, temperature = calibrated_log_likelihood(np.log(mean), labels)
        assert found.scores[step - 1] == pytest.approx(score, abs=1e-7)
        assert found.temperatures[step - 1] == pytest.approx(temperature, rel=1e-3)


def test_soft_targets_find_with_few_labels_what_they_alone_do_not() -> None:
    """Views of one hidden truth with noise of their own: the average knows more than labels."""
    rng = np.random.default_rng(2)
    truth = 2 * rng.normal(size=(4000, 6))
    truth -= np.logaddexp.reduce(truth, axis=1, keepdims=True)
    labels = (np.exp(truth).cumsum(axis=1) < rng.random((4000, 1))).sum(axis=1)
    noise = rng.uniform(0.7, 1.3, size=(60, 1, 1))
    logits = truth + noise * rng.normal(size=(60, 4000, 6))
    log_probs = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    few, many = slice(0, 100), slice(100, None)
    picks = {
        name: greedy_search(log_probs[:, few], labels[few], 5, defaults=defaults).picks
        for name, defaults in (("greedy", ()), ("conservative", range(20)))
    }
    held_out = {
        name: calibrated_log_likelihood(
            np.log(np.exp(log_probs[list(found)][:, many]).mean(axis=0)), labels[many]
        )[0]
        for name, found in picks.items()
    }
    assert held_out["conservative"] > held_out["greedy"] + 0.01


def test_the_choice_is_the_same_by_compiled_kernels() -> None:
    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    even, groups = np.ones(len(labels)), np.arange(len(labels))
    found = [
        conservative_search(
            Problem(Scoring(OBJECTIVES["cll"], compiled), log_probs, labels, even, groups),
            5,
            range(8),
        )
        for compiled in (True, False)
    ]
    assert found[0].picks == found[1].picks
    assert found[0].soft_targets == found[1].soft_targets


def test_predictions_too_large_to_repeat_are_judged_by_labels_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    monkeypatch.setattr(conservative, "MOST_VALUES", 0)
    found = greedy_search(log_probs, labels, 6, defaults=range(6))
    assert found.threshold is not None
    averaged = temper(log_probs, found.view_temperature)
    assert found.picks == _picks(averaged, labels, *[3.0] * 5, found.threshold)


@pytest.mark.parametrize(("images", "threshold"), [(60, 3.0), (299, 3.0), (300, 1.0)])
def test_few_images_take_the_highest_threshold_for_all_entries(
    images: int, threshold: float
) -> None:
    log_probs, labels = _pool(60, images, dict.fromkeys(range(20, 40), 1.0))
    found = greedy_search(log_probs, labels, 6, defaults=range(10))
    assert found.soft_targets != "quasi-random"
    assert found.threshold == threshold


def test_each_step_has_its_threshold_and_the_last_one_serves_the_rest() -> None:
    log_probs, labels = _pool(60, 300, {})
    none, any_better = math.inf, 0.0
    picks = _picks(log_probs, labels, none, none, any_better)
    assert picks[:2] == (0, 1)
    assert picks == greedy_search(log_probs, labels, 6, start=(0, 1)).picks


def test_the_defaults_begin_again_once_all_are_in() -> None:
    log_probs, labels = _pool(60, 300, {})
    assert _picks(log_probs, labels, math.inf, defaults=(3, 1), length=5) == (3, 1, 3, 1, 3)


def test_copies_of_images_are_no_further_proof_if_they_are_one_group() -> None:
    log_probs, labels = _pool(40, 100, {25: 0.5})
    many, truth = np.repeat(log_probs, 6, axis=1), np.repeat(labels, 6)
    groups = np.repeat([f"patient {one}" for one in range(100)], 6)
    alone = greedy_search(log_probs, labels, 6, defaults=range(8))
    grouped = greedy_search(many, truth, 6, defaults=range(8), groups=groups)
    assert grouped.soft_targets == alone.soft_targets
    assert grouped.threshold == alone.threshold
    problem = Problem(None, many, truth, np.ones(600), np.repeat(np.arange(100), 6))  # type: ignore[arg-type]
    assert problem.independent == 100


def test_the_first_picks_are_the_same_for_every_length_and_a_search_goes_on_from_them() -> None:
    log_probs, labels = _pool(40, 200, {25: 1.0, 30: 0.7})
    long = greedy_search(log_probs, labels, 8, defaults=range(8))
    short = greedy_search(log_probs, labels, 3, defaults=range(8))
    assert long.picks[:3] == short.picks
    assert greedy_search(log_probs, labels, 8, defaults=range(8), start=short.picks) == long


@pytest.mark.parametrize("images", [1, 2, 5])
def test_few_images_have_no_folds(images: int) -> None:
    log_probs, labels = _pool(12, images, {})
    found = greedy_search(log_probs, labels, 3, defaults=range(4))
    assert found.soft_targets in ("quasi-random", "pool")
    assert np.isfinite(found.scores).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"defaults": one}, "expected defaults from 0 to 39") for one in ([40], [-1], [0, 99])),
        ({"defaults": [0, 1], "groups": [1, 2]}, "expected 20 groups"),
        (
            {"defaults": [0], "objective": "accuracy"},
            "conservative selection needs the objective cll",
        ),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    refused(message, greedy_search, *_pool(40, 20, {}), 3, **options)
