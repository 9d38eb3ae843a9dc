"""Prediction sets: scores and thresholds against MAPIE, coverage by simulation."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from tests.support import refused

from relook.numerics.conformal import (
    FREE,
    PENALTY,
    Score,
    SetRule,
    coverage_deviation,
    fit_sets,
    images_for_coverage,
    set_scores,
)

SCORES: tuple[Score, ...] = ("lac", "aps", "raps")


def predictions(
    images: int, classes: int = 8, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Probabilities that are too sure, and labels that follow flatter ones."""
    rng = np.random.default_rng(seed)
    logits = 2.5 * rng.normal(size=(images, classes))
    shares, truth = (np.exp(one) for one in (logits, logits / 2))
    labels = [rng.choice(classes, p=row / row.sum()) for row in truth]
    return shares / shares.sum(axis=1, keepdims=True), np.array(labels)


class _Given(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier whose probabilities are its inputs."""

    def __init__(self, classes: int = 8) -> None:
        self.classes = classes
        self.classes_ = np.arange(classes)
        self.n_features_in_ = classes

    def fit(self, *_: object) -> "_Given":
        return self

    def predict_proba(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return rows

    def predict(self, rows: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.asarray(rows.argmax(axis=1))


class _Ones(np.random.RandomState):
    """MAPIE draws how much of the class itself a score leaves out: here all of it."""

    def uniform(self, *_: object, size: Any = None) -> Any:
        return np.ones(size)


def mapie(score: str, level: float, calibrate: Any, rows: Any) -> tuple[Any, Any]:
    """Return MAPIE's scores of the calibration images, and its sets."""
    from mapie.classification import SplitConformalClassifier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = SplitConformalClassifier(
            _Given(),
            confidence_level=level,
            conformity_score=score,
            prefit=True,
            random_state=_Ones(),
        ).conformalize(*calibrate)
        _, sets = made.predict_set(rows)
    return made._mapie_classifier.conformity_scores_.ravel(), sets[:, :, 0]


@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("score", ["lac", "aps"])
def test_scores_and_sets_are_those_of_mapie(score: Score, level: float) -> None:
    (shares, labels), (others, _) = predictions(200), predictions(300, seed=1)
    scores, sets = mapie(score, level, (shares, labels), others)
    assert np.abs(set_scores(shares, score)[np.arange(200), labels] - scores).max() < 1e-6
    rule = fit_sets(shares, labels, coverage=level, score=score)
    assert abs(rule.thresholds[0] - np.sort(scores)[math.ceil(201 * level - 1e-9) - 1]) < 1e-6
    assert (rule.sets(others) == sets).all()


def test_raps_is_the_published_formula() -> None:
    shares, _ = predictions(50)
    scores = set_scores(shares, "raps", penalty=0.2, free=3)
    for row, found in zip(shares, scores, strict=True):
        for one, own in enumerate(row):
            # ρ(y) + u·π(y) + λ·(o(y) − k)⁺ with u = 0
            likelier = row[row > own]
            assert abs(found[one] - likelier.sum() - 0.2 * max(len(likelier) + 1 - 3, 0)) < 1e-12


@given(st.integers(1, 400), st.sampled_from([0.5, 0.7, 0.8, 0.9, 0.95, 0.99]), st.integers(0, 99))
def test_the_threshold_is_the_exact_quantile(images: int, coverage: float, seed: int) -> None:
    shares, labels = predictions(images, seed=seed)
    whole = round(100 * coverage)
    rank = -(-(images + 1) * whole // 100)  # ⌈(n + 1)(1 − α)⌉ in whole numbers
    if rank > images:
        assert images < images_for_coverage(coverage)
        refused("takes at least", fit_sets, shares, labels, coverage=coverage)
        return
    assert images >= images_for_coverage(coverage)
    rule = fit_sets(shares, labels, coverage=coverage, score="lac")
    scores = np.sort(1 - shares[np.arange(images), labels])
    assert rule.thresholds == (scores[rank - 1],)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("per_class", [False, True])
def test_new_images_are_covered_as_asked_for(score: Score, per_class: bool) -> None:
    shares, labels = predictions(60_000, classes=5)
    found = []
    for part in np.split(np.arange(60_000), 100):
        fit, new = part[:300], part[300:]
        rule = fit_sets(shares[fit], labels[fit], coverage=0.85, score=score, per_class=per_class)
        found.append(rule.sets(shares[new])[np.arange(300), labels[new]].mean())
    error = np.std(found) / 10
    assert 0.85 - 3 * error < np.mean(found) < 0.85 + (0.02 if per_class else 1 / 301) + 3 * error
    if not per_class:  # what is spread by the draw, and by the 300 new images
        expected = math.hypot(coverage_deviation(0.85, 300), math.sqrt(0.85 * 0.15 / 300))
        assert abs(np.std(found) / expected - 1) < 0.25


def test_a_new_group_is_covered_where_images_of_a_group_are_alike() -> None:
    rng, found = np.random.default_rng(0), {True: [], False: []}  # type: ignore[var-annotated]
    for _ in range(300):
        sizes = rng.integers(1, 30, 40)
        hard = rng.uniform(size=40)
        groups = np.repeat(np.arange(40), sizes)
        sure = np.clip(hard[groups] + 0.02 * rng.normal(size=len(groups)), 0.01, 0.99)
        shares = np.stack([sure, 1 - sure], axis=1)
        known, labels = groups < 20, np.zeros(len(groups), np.int64)
        for grouped in found:
            units = groups[known] if grouped else None
            rule = fit_sets(shares[known], labels[known], score="lac", groups=units)
            covered = rule.sets(shares[~known])[:, 0]
            found[grouped].append(
                np.mean([covered[groups[~known] == one].mean() for one in range(20, 40)])
            )
    assert 0.89 < np.mean(found[True]) < 0.95
    assert np.mean(found[False]) < 0.89  # images taken for independent cover too few


@pytest.mark.parametrize("score", ["aps", "raps"])
def test_the_likeliest_class_is_in_every_set(score: Score) -> None:
    shares, labels = predictions(100)
    sets = fit_sets(shares, labels, coverage=0.01, score=score).sets(shares)
    assert (sets.sum(axis=1) == 1).all()
    assert (sets.argmax(axis=1) == shares.argmax(axis=1)).all()


def test_equal_probabilities_go_by_the_order_of_classes() -> None:
    assert set_scores(np.full((1, 4), 0.25), "aps").tolist() == [[0, 0.25, 0.5, 0.75]]


def test_raps_alone_has_a_penalty() -> None:
    shares, labels = predictions(100)
    assert [fit_sets(shares, labels, score=score).penalty for score in SCORES] == [0, 0, PENALTY]
    assert [fit_sets(shares, labels, score=score).free for score in SCORES] == [0, 0, FREE]


def test_what_cannot_be_is_refused_in_one_line() -> None:
    shares, labels = predictions(30, classes=3)
    labels = np.array([2] * 5 + [0] * 12 + [1] * 13)
    refused("0.99 takes at least 99 images .* got 30", fit_sets, shares, labels, coverage=0.99)
    refused(
        "0.9 takes at least 9 images of cat .* got 5: give more",
        *(fit_sets, shares, labels),
        per_class=True,
        classes=("ant", "bee", "cat"),
    )
    refused("9 groups of images .* got 2", fit_sets, shares, labels, groups=np.arange(30) % 2)
    refused("unknown score 'ap': did you mean 'aps'", fit_sets, shares, labels, score="ap")
    refused("coverage: expected a share between 0 and 1", fit_sets, shares, labels, coverage=1)
    refused("penalty: expected a number from 0 on", fit_sets, shares, labels, penalty=math.nan)
    refused("free: expected a whole number from 1 on", fit_sets, shares, labels, free=0)
    refused("expected 4 classes, as", SetRule("lac", 0.9, (1.0,) * 4, 1.0).sets, shares)
