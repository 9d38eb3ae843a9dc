from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from tests.unit.data.marked_images import TURNED, Oracle, noisy
from tests.unit.evaluation.compare_cases import QUICK, row

from relook.data import Dataset
from relook.evaluation.compare import compare
from relook.evaluation.comparison import METRICS_OF_A_ROW, Comparison
from relook.evaluation.cross_validation import cross_validated
from relook.numerics.calibration import calibrated_log_likelihood, fit_temperature, temper
from relook.numerics.splits import folds, halvings
from relook.numerics.view_temperature import (
    VIEW_TEMPERATURES,
    choose_view_temperature,
    learned_view_temperatures,
    most_probable,
    prefix_averages,
)
from relook.selection.objectives import class_weights

FloatArray = NDArray[np.float64]
SURE = 4.0  # times the logits: a network that is far too sure


def overconfident(images: int = 600) -> tuple[Dataset, FloatArray]:
    dataset, logits = noisy(images)
    return dataset, SURE * logits


def mean_of(log_probs: FloatArray, kappa: float) -> FloatArray:
    return np.asarray(np.log(np.exp(temper(log_probs, kappa)).mean(axis=0)))


def test_the_usual_average_is_the_mean_of_probabilities() -> None:
    log_probs = log_softmax(overconfident(40)[1], axis=-1)
    for length, means in zip((1, 3), prefix_averages(log_probs, (1, 3), (1.0, 4.0)), strict=True):
        usual = np.log(np.exp(log_probs[:length]).mean(axis=0))
        np.testing.assert_allclose(means[1.0], usual, rtol=1e-12)
        np.testing.assert_allclose(means[4.0], mean_of(log_probs[:length], 4.0), rtol=1e-12)


def test_a_network_that_is_too_sure_gets_another_average_than_a_sound_one() -> None:
    dataset, logits = overconfident()
    everything = [np.arange(len(dataset))]
    (sure,) = learned_view_temperatures(log_softmax(logits, -1), dataset.labels, everything)
    assert sure >= 2
    one = log_softmax(logits, -1)[:1]
    assert learned_view_temperatures(one, dataset.labels, everything) == [1.0]


def test_what_a_part_asks_for_is_what_fitting_on_it_alone_would_choose() -> None:
    dataset, logits = overconfident()
    log_probs, labels = log_softmax(logits, -1), dataset.labels
    parts = [part for part, _ in halvings(len(labels), 2, 0)]
    found = learned_view_temperatures(log_probs, labels, parts)
    for part, kappa in zip(parts, found, strict=True):
        scores = [
            calibrated_log_likelihood(mean_of(log_probs[:, part], one), labels[part])[0]
            for one in VIEW_TEMPERATURES
        ]
        plain = fit_temperature(log_probs[0, part], labels[part])
        assert kappa == most_probable(scores, len(part), plain)


def test_near_copies_of_few_images_say_little_about_the_average() -> None:
    dataset, logits = noisy(10, seed=4)
    copies = np.repeat(np.arange(10), 50)
    log_probs, labels = log_softmax(logits, -1)[:, copies], dataset.labels[copies]
    everything = [np.arange(len(labels))]
    assert learned_view_temperatures(log_probs, labels, everything) > (
        learned_view_temperatures(log_probs, labels, everything, copies)
    )


def test_weights_are_repeats_that_say_nothing_new() -> None:
    dataset, logits = overconfident(120)
    log_probs, labels = log_softmax(logits, -1), dataset.labels
    weights = np.where(labels == 0, 9.0, 1.0)
    again = np.repeat(np.arange(120), weights.astype(int))
    (found,) = learned_view_temperatures(log_probs, labels, [np.arange(120)], None, weights)
    assert [found] == learned_view_temperatures(
        log_probs[:, again], labels[again], [np.arange(len(again))], again
    )
    assert found == choose_view_temperature(log_probs, labels, weights)


# In a comparison


@pytest.fixture(scope="module")
def sure() -> tuple[Comparison, FloatArray, Dataset]:
    dataset, logits = overconfident(200)
    oracle = Oracle(logits)
    policy = replace(TURNED, view_temperature=4.0)
    options = {**QUICK, "methods": ("d4",), "budgets": (4, 8)}
    found = compare(oracle.predictor, dataset, policy, **options)
    return found, oracle.log_probs.double().numpy(), dataset


def test_a_policy_is_scored_with_its_own_average_and_with_the_usual_one(
    sure: tuple[Comparison, FloatArray, Dataset],
) -> None:
    comparison, log_probs, dataset = sure
    found = row(comparison, "gps", 4)
    for metric, kappa in (("cll", 4.0), ("cll_learned_average", 4.0), ("cll_usual_average", 1.0)):
        mean = mean_of(log_probs, kappa)
        scored = cross_validated(mean, dataset.labels, seed=0, view_temperature=kappa)
        expected = scored.metrics["cll"]
        assert found.metrics[metric].mean == pytest.approx(expected, abs=1e-6)
    assert found.metrics["cll"].mean > found.metrics["cll_usual_average"].mean + 0.05


def test_a_baseline_learns_its_average_on_the_images_that_calibrate_it(
    sure: tuple[Comparison, FloatArray, Dataset],
) -> None:
    comparison, turns, dataset = sure
    labels = dataset.labels
    # The eight views of D4 are the four turns twice: a mirror image carries its number too.
    found = row(comparison, "d4", 8)
    assert found.metrics["cll"] == found.metrics["cll_usual_average"]
    log_probs = np.concatenate([turns, turns])
    pairs = folds(len(labels), 10, 0)
    chosen = learned_view_temperatures(log_probs, labels, [part for part, _ in pairs])
    values: list[float] = []
    for (calibrate, score), kappa in zip(pairs, chosen, strict=True):
        mean = mean_of(log_probs, kappa)
        temperature = fit_temperature(mean[calibrate], labels[calibrate], view_temperature=kappa)
        calibrated = temper(mean[score], temperature)
        values.extend(calibrated[np.arange(len(score)), labels[score]])
    learned = found.metrics["cll_learned_average"].mean
    assert learned == pytest.approx(np.mean(values), abs=1e-6)
    assert learned > found.metrics["cll"].mean + 0.05
    assert found.fitted is not None
    assert found.fitted.view_temperature > 1


def test_a_balanced_comparison_learns_the_averages_of_baselines_with_classes_balanced() -> None:
    """A policy's was learned so too: a baseline has the same chance."""
    dataset, logits = noisy(600)
    kept = np.flatnonzero((dataset.labels != 0) | (np.arange(600) % 5 == 0))
    part = dataset.subset(kept)
    oracle = Oracle(np.where(dataset.labels[:, None] == 0, 0.25, 4.0) * logits)
    options = {**QUICK, "methods": ("d4",), "budgets": (8,)}
    found = {}
    for balanced in (False, True):
        scored = compare(oracle.predictor, part, TURNED, **options, balanced=balanced)
        fitted = row(scored, "d4", 8).fitted
        assert fitted is not None
        found[balanced] = fitted.view_temperature
    turns = np.concatenate([oracle.log_probs.double().numpy()[:, kept]] * 2)
    weights = class_weights(part.labels)
    everything = [np.arange(len(part))]
    assert found[True] != found[False]
    assert [found[True]] == learned_view_temperatures(turns, part.labels, everything, None, weights)


def test_the_papers_comparison_knows_the_usual_average_alone() -> None:
    dataset, logits = overconfident(100)
    options = {**QUICK, "methods": ("d4",), "budgets": (8,), "learned_averages": False}
    found = compare(Oracle(logits).predictor, dataset, TURNED, **options)
    assert {name for one in found.rows for name in one.metrics} == set(METRICS_OF_A_ROW)
    policy, rival = row(found, "gps", 8), row(found, "d4", 8)
    gap = policy.metrics["cll"].mean - rival.metrics["cll"].mean
    assert (policy.over_rival or {})["cll"].estimate == pytest.approx(gap, abs=1e-9)
    assert found.learned_averages is None


def test_the_policy_is_compared_with_a_baseline_that_had_the_same_chance(
    sure: tuple[Comparison, FloatArray, Dataset],
) -> None:
    comparison, _, _ = sure
    policy, rival = row(comparison, "gps", 8), row(comparison, "d4", 8)
    fair = policy.metrics["cll"].mean - rival.metrics["cll_learned_average"].mean
    assert (policy.over_rival or {})["cll"].estimate == pytest.approx(fair, abs=1e-6)
    unfair = policy.metrics["cll"].mean - rival.metrics["cll"].mean
    assert unfair > fair + 0.05
    learned = (rival.over_plain or {})["cll_learned_average"]
    plain = comparison.rows[0].metrics["cll"].mean
    assert learned.estimate == pytest.approx(rival.best_cll - plain, abs=1e-6)
    assert learned.low < learned.estimate < learned.high
