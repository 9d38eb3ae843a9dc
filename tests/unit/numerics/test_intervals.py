import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax
from tests.support import refused

from relook.numerics.intervals import (
    LIKELY_IMAGES,
    Interval,
    independent_images,
    likely_variance,
    mean_and_deviation,
    mean_and_error,
    paired_interval,
    student_quantile,
)


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n) - 0.8


def test_the_interval_reads_well() -> None:
    assert str(Interval(0.0123, 0.0101, 0.01456, 0.95)) == "+0.0123 [+0.0101, +0.0146]"
    assert str(Interval(-0.5, -1.0, 0.25, 0.9)) == "-0.5000 [-1.0000, +0.2500]"


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.9995])
def test_the_interval_agrees_with_scipy(confidence: float) -> None:
    values = skewed(200)
    ours = paired_interval(values, confidence=confidence)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    assert ours.estimate == pytest.approx(values.mean())
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-6)
    assert ours.confidence == confidence


@pytest.mark.parametrize("freedom", [10, 30, 500])
@pytest.mark.parametrize("share", [0.9, 0.975, 0.9999])
def test_students_quantile_is_scipys(share: float, freedom: int) -> None:
    expected = stats.t.ppf(share, freedom)
    assert student_quantile(share, freedom) == pytest.approx(expected, rel=2e-3)
    assert student_quantile(1 - share, freedom) == pytest.approx(-expected, rel=2e-3)


def test_groups_count_as_a_whole() -> None:
    rng = np.random.default_rng(3)
    means = rng.normal(size=60)
    shuffled = rng.permutation(240)
    groups = np.repeat([f"patient {number}" for number in range(60)], 4)[shuffled]
    copies = paired_interval(np.repeat(means, 4)[shuffled], groups=groups)
    alone = paired_interval(means)
    assert (copies.low, copies.high) == pytest.approx((alone.low, alone.high))


def test_weights_are_repeats_that_prove_nothing() -> None:
    values = skewed(40)
    weights = np.repeat([1.0, 3.0], 20)
    found = paired_interval(values, weights=weights)
    again = paired_interval(
        np.repeat(values, weights.astype(int)), groups=np.repeat(np.arange(40), weights.astype(int))
    )
    assert (found.estimate, found.low) == pytest.approx((again.estimate, again.low))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for trial in range(300):
        interval = paired_interval(skewed(150, trial), confidence=0.9)
        covered += interval.low <= 0.2 <= interval.high
    assert 0.85 <= covered / 300 <= 0.95


@pytest.mark.parametrize(
    ("sizes", "grouped"), [([1] * 95 + [19] * 5, False), ([100, *[1] * 50], True)]
)
def test_a_few_that_weigh_most_are_few(sizes: list[int], grouped: bool) -> None:
    """A rare class in balanced figures, and a large group: their own spread decides."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(len(sizes)), sizes) if grouped else None
    weights = None if grouped else np.array(sizes, dtype=np.float64)
    covered = []
    for _ in range(400):
        values = rng.normal(size=len(sizes))
        found = paired_interval(
            values if groups is None else values[groups], groups=groups, weights=weights
        )
        covered.append(found.low <= 0 <= found.high)
    assert np.mean(covered) > 0.93


def test_equal_differences_leave_no_doubt() -> None:
    assert paired_interval([0.5] * 10) == Interval(0.5, 0.5, 0.5, 0.95)


def test_predictions_say_how_much_a_difference_varies() -> None:
    rng = np.random.default_rng(0)
    one, other = log_softmax(rng.normal(size=(2, 500, 5)), axis=2)
    chance = (np.exp(one) + np.exp(other)) / 2
    labels = np.array([rng.choice(5, size=200, p=row / row.sum()) for row in chance])
    changes = np.take_along_axis(one - other, labels, axis=1)
    assert likely_variance(one, other) == pytest.approx(changes.var(), rel=0.02)


def rare_errors(images: int, seed: int) -> tuple[np.ndarray, float]:
    """Differences between calibrated predictions and noisier ones, and their likely variance."""
    rng = np.random.default_rng(seed)
    logits = np.zeros((images, 2))
    logits[:, 0] = 4 + rng.normal(size=images)
    one, other = log_softmax([logits, logits + rng.normal(size=(images, 2))], axis=2)
    labels = (rng.random(images) < np.exp(one[:, 1])).astype(int)
    return (one - other)[np.arange(images), labels], likely_variance(one, other)


def test_rare_errors_are_reckoned_with_though_none_is_seen() -> None:
    truth = rare_errors(400_000, 9999)[0].mean()
    covered = {True: 0, False: 0}
    for trial in range(400):
        values, likely = rare_errors(30, trial)
        for known in covered:
            found = paired_interval(values, likely=likely if known else None)
            covered[known] += int(found.low <= truth <= found.high)
    assert covered[False] < 0.9 * 400
    assert covered[True] > 0.95 * 400


def test_what_is_likely_counts_for_less_the_more_images_there_are() -> None:
    reach = {}
    for images in (30, 30_000):
        values = skewed(images)
        own, pooled = (paired_interval(values, likely=one).high for one in (None, 9 * values.var()))
        reach[images] = (pooled - values.mean()) / (own - values.mean())
    assert reach[30] == pytest.approx(np.sqrt((29 + 9 * LIKELY_IMAGES) / (29 + LIKELY_IMAGES)), 0.1)
    assert reach[30_000] == pytest.approx(1, abs=0.01)


def test_images_of_a_group_are_one() -> None:
    even = np.ones(60)
    assert independent_images(even) == 60
    assert independent_images(even, np.repeat(np.arange(6), 10)) == pytest.approx(6)
    assert independent_images(even, np.r_[np.zeros(50), np.arange(1, 11)]) < 1.5
    assert independent_images(np.r_[1.0, 1.0, 0.0]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"differences": [1.0]}, "at least 2 images"),
        ({"differences": [[1.0, 2.0]]}, r"\(1, 2\)"),
        ({"differences": [1.0, np.nan]}, "finite differences"),
        ({"differences": [1.0, 2.0], "groups": [0]}, "expected 2 groups"),
        ({"differences": [1.0, 2.0], "groups": [3, 3]}, "at least 2 groups"),
        ({"differences": [1.0, 2.0], "confidence": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], message: str) -> None:
    refused(message, paired_interval, **arguments)


def test_mean_and_deviation() -> None:
    assert mean_and_deviation([1.0, 2.0, 6.0]) == pytest.approx((3.0, np.sqrt(7)))
    assert mean_and_deviation([4.0]) == (4.0, 0.0)
    refused("at least 1 value", mean_and_deviation, [])


def test_the_mean_and_its_error_are_the_textbooks() -> None:
    values = np.random.default_rng(1).normal(size=30)
    mean, error = mean_and_error(values, np.ones(30))
    assert mean == pytest.approx(values.mean())
    assert error == pytest.approx(values.std() / np.sqrt(30))
    twice = mean_and_error(values[:10], np.arange(1.0, 11.0))
    repeated = np.repeat(values[:10], np.arange(1, 11))
    assert twice[0] == pytest.approx(repeated.mean())


def test_the_error_of_groups_is_that_of_their_means() -> None:
    values = np.random.default_rng(0).normal(size=30)
    weights = np.random.default_rng(1).uniform(0.5, 2, size=30)
    alone = mean_and_error(values, weights)
    copied = mean_and_error(np.repeat(values, 4), np.repeat(weights, 4))
    grouped = mean_and_error(np.repeat(values, 4), np.repeat(weights, 4), np.arange(120) // 4)
    assert grouped == pytest.approx(alone)
    assert copied[1] == pytest.approx(alone[1] / 2)
