import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import refused

from relook.numerics.arrays import Indices
from relook.numerics.splits import (
    Shares,
    folds,
    halvings,
    parse_split,
    search_split,
    stratified_split,
)


def assert_is_split(n: int, first: Indices, second: Indices) -> None:
    assert sorted([*first, *second]) == list(range(n))
    assert list(first) == sorted(first)
    assert list(second) == sorted(second)
    assert len(first)
    assert len(second)


@given(
    labels=st.lists(st.integers(0, 6), min_size=2, max_size=120),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=300, deadline=None)
def test_sizes_are_exact_and_classes_in_proportion(
    labels: list[int], share: float, seed: int
) -> None:
    first, second = stratified_split(labels, share, seed)
    n = len(labels)
    assert_is_split(n, first, second)
    assert len(second) == np.clip(np.floor(share * n + 0.5), 1, n - 1)
    sizes = np.bincount(labels, minlength=7)
    taken = np.bincount(np.asarray(labels)[second], minlength=7)
    several = sizes >= 2
    if several.sum() <= len(second) <= n - several.sum():
        assert (taken[several] >= 1).all()
        assert (sizes - taken)[several].all()
    elif 1 <= share * n <= n - 1:  # plain largest remainder
        assert (np.abs(taken - share * sizes) < 1).all()


def test_rounding_favours_no_class() -> None:
    labels = np.arange(40)  # one image each: 20 classes must go to either side
    means = [stratified_split(labels, 0.5, seed)[1].mean() for seed in range(200)]
    assert np.mean(means) == pytest.approx(19.5, abs=1.0)


def test_images_are_drawn_evenly_within_a_class() -> None:
    labels = np.array([0] * 12 + [1] * 6)
    hits = np.zeros(18)
    for seed in range(2000):
        hits[stratified_split(labels, 1 / 3, seed)[1]] += 1
    np.testing.assert_allclose(hits / 2000, 1 / 3, atol=0.05)


def test_the_seed_decides_and_the_global_generator_does_not() -> None:
    labels = np.arange(100) % 3
    first = stratified_split(labels, 0.3, 7)
    np.random.seed(0)  # noqa: NPY002  the global generator must not matter
    again = stratified_split(labels, 0.3, 7)
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[1], stratified_split(labels, 0.3, 8)[1])


@given(
    sizes=st.lists(st.integers(1, 15), min_size=2, max_size=40),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=200, deadline=None)
def test_groups_are_never_torn_apart(sizes: list[int], share: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    labels = rng.integers(4, size=len(groups))
    first, second = stratified_split(labels, share, seed, groups)
    assert_is_split(len(labels), first, second)
    assert not set(groups[first]) & set(groups[second])


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_shares_are_near_with_groups_of_many_sizes(share: float) -> None:
    rng = np.random.default_rng(1)
    for seed in range(10):
        groups = np.repeat(np.arange(300), rng.integers(1, 12, size=300))
        owner = rng.integers(5, size=300)  # a group's images are mostly of one class
        labels = np.where(rng.random(len(groups)) < 0.8, owner[groups], rng.integers(5))
        _, second = stratified_split(labels, share, seed, groups)
        shares = np.bincount(labels[second], minlength=5) / np.bincount(labels)
        assert len(second) / len(labels) == pytest.approx(share, abs=0.01)
        np.testing.assert_allclose(shares, share, atol=0.03)


def test_every_group_size_gets_its_turn_on_both_sides() -> None:
    groups = np.repeat(np.arange(6), [1, 2, 4, 8, 16, 32])
    sides = {tuple(stratified_split(groups * 0, 0.5, seed, groups)[1]) for seed in range(30)}
    assert len(sides) > 3


def test_halvings_use_each_half_both_ways() -> None:
    pairs = halvings(101, count=5, seed=3)
    assert len(pairs) == 10
    for (first, second), (back, forth) in zip(pairs[::2], pairs[1::2], strict=True):
        assert_is_split(101, first, second)
        assert abs(len(first) - len(second)) == 1
        np.testing.assert_array_equal(first, forth)
        np.testing.assert_array_equal(second, back)
    assert len({tuple(first) for first, _ in pairs}) == 10


def test_halvings_by_number_by_seed_and_by_group() -> None:
    for first, second in halvings(10):
        assert_is_split(10, first, second)
        assert len(first) == 5
    np.testing.assert_array_equal(halvings(50, seed=1)[4][0], halvings(50, seed=1)[4][0])
    np.testing.assert_array_equal(halvings(50, count=3)[4][0], halvings(50, count=9)[4][0])
    assert not np.array_equal(halvings(50, seed=1)[4][0], halvings(50, seed=2)[4][0])
    groups = np.arange(60) // 3
    for first, second in halvings(60, groups=groups):
        assert not set(groups[first]) & set(groups[second])
        assert len(first) == len(second)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    refused("share between 0 and 1", stratified_split, [0, 1], share, 0)


def test_too_little_to_split_is_refused() -> None:
    refused("at least 2 images", stratified_split, [0], 0.5, 0)
    refused("at least 2 images", halvings, 1)
    refused("at least 2 groups", stratified_split, [0, 1], 0.5, 0, groups=["a", "a"])
    refused("expected 2 group ids", stratified_split, [0, 1], 0.5, 0, groups=["a"])
    refused("at least 1 halving", halvings, 10, count=0)


@pytest.mark.parametrize(
    ("text", "images", "search", "test"),
    [
        ("0.5:0.5", 10_000, 5000, 5000),
        ("5000:5000", 10_000, 5000, 5000),
        ("2500:rest", 10_000, 2500, 7500),
        ("rest:2500", 10_000, 7500, 2500),
        ("2000:8000", 50_000, 2000, 8000),
        (" .25 : Rest ", 101, 25, 76),
        ("0.1:500", 7001, 700, 500),
        ("1:1", 3, 1, 1),
        ("0.333:0.667", 1000, 333, 667),
    ],
)
def test_a_split_is_shares_numbers_or_the_rest(
    text: str, images: int, search: int, test: int
) -> None:
    shares = parse_split(text, images)
    labels = np.arange(images) % 7
    first, second = search_split(labels, shares.holdout, shares.left_out, 5)
    assert (len(first), len(second)) == (search, test)
    assert not set(first) & set(second)
    for part in (first, second):
        if len(part) >= 100:
            assert np.ptp(np.bincount(labels[part])) <= 3


@given(images=st.integers(2, 10**7), data=st.data())
def test_any_two_numbers_that_fit_are_met_exactly(images: int, data: st.DataObject) -> None:
    search = data.draw(st.integers(1, images - 1))
    test = data.draw(st.integers(1, images - search))
    shares = parse_split(f"{search}:{test}", images)
    used = images - int(np.floor(shares.left_out * images + 0.5))
    assert used == search + test
    assert int(np.floor(shares.holdout * used + 0.5)) == test


def test_nothing_left_out_is_the_plain_split_and_groups_stay_together() -> None:
    labels, groups = np.arange(300) % 3, np.arange(300) // 4
    assert parse_split("200:100", 300) == Shares(1 / 3)
    for ours, theirs in zip(
        search_split(labels, 0.4, 0.0, 2), stratified_split(labels, 0.4, 2), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    first, second = search_split(labels, 0.5, 0.4, 2, groups)
    assert not set(groups[first]) & set(groups[second])
    assert len(first) + len(second) == pytest.approx(180, abs=8)


@pytest.mark.parametrize(
    "text", ["", ":", "0.5", "a:b", "rest:rest", "1:2:3", "-5:10", "1.5:0.5", "0.0:1.0", "nan:0.5"]
)
def test_other_splits_are_refused(text: str) -> None:
    refused("split: expected SEARCH:TEST as shares", parse_split, text, 100)


@pytest.mark.parametrize("text", ["60:60", "100:rest", "0:50", "0.9:0.2", "0.001:50"])
def test_parts_that_do_not_fit_are_refused(text: str) -> None:
    refused("at least 1 image in each part and at most 100 in both", parse_split, text, 100)


@given(
    sizes=st.lists(st.integers(1, 30), min_size=2, max_size=40),
    count=st.integers(2, 12),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=100, deadline=None)
def test_folds_are_a_partition_that_tears_no_group(sizes: list[int], count: int, seed: int) -> None:
    groups = np.repeat(np.arange(len(sizes)), sizes)
    found = folds(len(groups), count, seed, groups)
    assert 2 <= len(found) <= count
    assert sorted(np.concatenate([part for _, part in found])) == list(range(len(groups)))
    for others, part in found:
        assert_is_split(len(groups), others, part)
        assert not set(groups[others]) & set(groups[part])


def test_folds_of_single_images_are_even_and_follow_the_seed() -> None:
    assert {len(part) for _, part in folds(95, 10, 0)} == {9, 10}
    parts = [[part.tolist() for _, part in folds(95, 10, seed)] for seed in (0, 0, 1)]
    assert parts[0] == parts[1] != parts[2]
    refused("at least 2 images or groups", folds, 5, 2, 0, np.zeros(5))
