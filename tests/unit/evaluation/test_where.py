from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax
from scipy.stats import t
from sklearn.metrics import confusion_matrix
from tests.support import different
from tests.unit.data.marked_images import TURNED, Oracle, marked, noisy
from tests.unit.evaluation.compare_cases import QUICK

from relook.data import Dataset
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison
from relook.evaluation.where import FEWEST, Slice, confusions, gains_by_slice

Floats = NDArray[np.float64]


def labelled(counts: tuple[int, ...]) -> Dataset:
    return marked(np.repeat(np.arange(len(counts)), counts), len(counts))


def slices_of(dataset: Dataset, cll: Floats, right: Floats | None = None) -> tuple[Slice, ...]:
    same = np.zeros(len(cll)) if right is None else right
    places, confidence = np.arange(len(cll)), np.linspace(0.2, 1, len(cll))
    return gains_by_slice(dataset, places, cll, same, confidence)


def test_intervals_are_students_at_bonferronis_level() -> None:
    dataset = labelled((60, 90, 250))
    cll = np.random.default_rng(0).normal(0.02, 0.3, len(dataset))
    found = slices_of(dataset, cll)
    assert Counter(one.kind for one in found) == {"class": 3, "brightness": 4, "confidence": 4}
    level = 1 - 0.05 / (2 * len(found))
    for number, one in enumerate(found[:3]):
        own = cll[dataset.labels == number]
        low, high = t.interval(level, len(own) - 1, own.mean(), own.std(ddof=1) / len(own) ** 0.5)
        assert one.cll is not None
        assert (one.cll.low, one.cll.high) == pytest.approx((low, high), abs=1e-6)
        assert one.images == len(own)


def test_quantile_slices_hold_all_images_once() -> None:
    dataset = labelled((200, 200))
    cll = np.random.default_rng(1).normal(size=400)
    for kind in ("brightness", "confidence"):
        parts = [one for one in slices_of(dataset, cll) if one.kind == kind]
        assert sum(one.images for one in parts) == 400
        means = [one.cll.estimate * one.images for one in parts if one.cll]
        assert sum(means) / 400 == pytest.approx(cll.mean())


def test_too_few_images_get_no_number() -> None:
    dataset = labelled((FEWEST - 1, FEWEST, 5))
    found = [one for one in slices_of(dataset, np.zeros(len(dataset))) if one.kind == "class"]
    assert [one.cll is None for one in found] == [True, False, True]
    assert [one.images for one in found] == [FEWEST - 1, FEWEST, 5]
    # Many images of few patients are few.
    grouped = replace(dataset, groups=np.arange(len(dataset)) // 4)
    assert all(one.cll is None for one in slices_of(grouped, np.zeros(44)) if one.kind == "class")


def test_columns_and_groups_with_images_enough_are_slices() -> None:
    dataset = labelled((50, 50))
    columns = {"camera": np.array(["a", "b"])[np.arange(100) % 2], "path": np.arange(100)}
    found = slices_of(replace(dataset, columns=columns), (np.arange(100) % 2).astype(np.float64))
    cameras = {one.name: one.cll.estimate for one in found if one.kind == "camera" and one.cll}
    assert cameras == {"a": 0, "b": 1}
    assert "path" not in {one.kind for one in found}
    hospitals = replace(dataset, groups=np.arange(100) // 50, identities=different(100))
    groups = [one for one in slices_of(hospitals, np.ones(100)) if one.kind == "group"]
    assert [(one.name, one.images) for one in groups] == [("0", 50), ("1", 50)]


def test_a_class_that_is_all_lost_has_an_interval() -> None:
    dataset = labelled((30, 30))
    right = np.where(dataset.labels == 0, -1.0, 0.0)
    (lost, kept) = slices_of(dataset, right, right)[:2]
    assert lost.accuracy is not None
    assert lost.accuracy.high < -0.5
    assert lost.examples == (0, 1, 2)
    assert kept.examples == ()


def test_confusions_are_counted_as_scikit_learn_does() -> None:
    generator = np.random.default_rng(2)
    labels, wrong, right = (generator.integers(0, 3, 300) for _ in range(3))
    found = confusions(wrong, right, labels, np.arange(1000, 1300))
    fixed = right == labels
    matrix = confusion_matrix(labels[fixed], wrong[fixed], labels=range(3))
    assert {(one.label, one.answer): one.images for one in found} == {
        (i, j): matrix[i, j] for i in range(3) for j in range(3) if i != j
    }
    assert [one.images for one in found] == sorted((one.images for one in found), reverse=True)
    for one in found:
        places = np.array(one.examples) - 1000
        assert (labels[places] == one.label).all()
        assert (wrong[places] == one.answer).all()


def harmed(harm: float) -> Comparison:
    """Compare turned views that help all classes but the first, which they harm."""
    dataset, logits = noisy(600, noise=(3.0,) * 4)
    first = dataset.labels == 0
    logits[1:, first, 0] -= harm
    policy = replace(TURNED, temperatures=None)
    options = {**QUICK, "methods": ("flip",), "budgets": (1, 4)}
    return compare(Oracle(logits).predictor, dataset, policy, **options)


def test_a_class_that_is_harmed_is_named_by_the_verdict() -> None:
    comparison = harmed(3.0)
    assert comparison.where is not None
    assert [one.name for one in comparison.where.losing] == ["class 0"]
    assert "It loses on 1 class: class 0 (cLL −" in comparison.verdict.sentence
    assert comparison.where.made[0].label == 0
    slices = [one for one in comparison.results().rows if one["slice"] == "class"]
    assert {one["part"] for one in slices} == {f"class {i}" for i in range(4)}
    unharmed = harmed(0.0)
    assert "loses on" not in unharmed.verdict.sentence
    assert unharmed.where is not None
    assert unharmed.where.losing == []


def test_no_class_is_named_where_nothing_differs() -> None:
    images, seeds = 600, 300
    dataset, named = labelled((images // 10,) * 10), 0
    rows = np.arange(images)
    for seed in range(seeds):
        logits = np.random.default_rng(seed).normal(size=(2, images, 10)) * 2
        logits[:, rows, dataset.labels] += 4
        before, after = log_softmax(logits, axis=-1)
        right = [(one.argmax(axis=1) == dataset.labels) * 1.0 for one in (before, after)]
        gains = (after - before)[rows, dataset.labels], right[1] - right[0]
        found = gains_by_slice(dataset, rows, *gains, before.max(axis=1))
        named += any(one.examples for one in found)
    # Of the 5 % that the level allows, half are losses, and classes are half of the slices.
    assert named <= 0.025 * seeds
