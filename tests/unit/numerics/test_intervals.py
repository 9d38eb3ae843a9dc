import tracemalloc

import numpy as np
import pytest
from scipy.stats import bootstrap
from tests.support import refused

from relook.numerics import intervals as statistics
from relook.numerics.intervals import (
    Interval,
    mean_and_deviation,
    mean_and_error,
    paired_bootstrap,
)


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(size=n) - 0.8


def test_the_interval_reads_well() -> None:
    assert str(Interval(0.0123, 0.0101, 0.01456, 0.95)) == "+0.0123 [+0.0101, +0.0146]"
    assert str(Interval(-0.5, -1.0, 0.25, 0.9)) == "-0.5000 [-1.0000, +0.2500]"


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_agrees_with_scipy(confidence: float) -> None:
    values = skewed(200)
    ours = paired_bootstrap(values, seed=1, resamples=20_000, confidence=confidence)
    theirs = bootstrap(
        (values,),
        np.mean,
        n_resamples=20_000,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(2),
    )
    noise = 0.05 * theirs.standard_error
    assert ours.estimate == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=noise)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=noise)
    assert ours.confidence == confidence


def test_groups_are_drawn_whole_as_scipy_would() -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 12, size=60)
    groups = np.repeat([f"patient {number}" for number in range(60)], sizes)
    values = np.repeat(rng.normal(size=60), sizes) + 0.1 * rng.normal(size=sizes.sum()) + 0.2
    shuffled = rng.permutation(len(values))
    ours = paired_bootstrap(values[shuffled], seed=1, resamples=20_000, groups=groups[shuffled])
    sums = np.add.reduceat(values, np.cumsum(sizes) - sizes)
    theirs = bootstrap(
        (sums, sizes),
        lambda total, count, axis: total.sum(axis=axis) / count.sum(axis=axis),
        paired=True,
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(2),
    )
    noise = 0.05 * theirs.standard_error
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=noise)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=noise)
    alone = paired_bootstrap(values, seed=1)
    assert ours.high - ours.low > 1.5 * (alone.high - alone.low)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    covered = 0
    for trial in range(300):
        interval = paired_bootstrap(skewed(150, trial), seed=trial, resamples=400, confidence=0.9)
        covered += interval.low <= 0.2 <= interval.high
    assert 0.85 <= covered / 300 <= 0.95


def test_the_seed_decides_and_blocks_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = skewed(77)
    first = paired_bootstrap(values, seed=5)
    np.random.seed(0)  # noqa: NPY002  the global generator must not matter
    assert paired_bootstrap(values, seed=5) == first
    assert paired_bootstrap(values, seed=6) != first
    monkeypatch.setattr(statistics, "_BLOCK_DRAWS", 1000)
    assert paired_bootstrap(values, seed=5) == first


def test_equal_differences_leave_no_doubt() -> None:
    assert paired_bootstrap([0.5] * 10, seed=0) == Interval(0.5, 0.5, 0.5, 0.95)


def test_memory_is_bounded_for_many_images() -> None:
    values = skewed(50_000)
    tracemalloc.start()
    paired_bootstrap(values, seed=0, resamples=200)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"differences": [1.0]}, "at least 2 images"),
        ({"differences": [[1.0, 2.0]]}, r"\(1, 2\)"),
        ({"differences": [1.0, np.nan]}, "finite differences"),
        ({"differences": [1.0, 2.0], "groups": [0]}, "expected 2 group ids"),
        ({"differences": [1.0, 2.0], "groups": [3, 3]}, "at least 2 groups"),
        ({"differences": [1.0, 2.0], "resamples": 0}, "at least 1 resample"),
        ({"differences": [1.0, 2.0], "confidence": 1.0}, "between 0 and 1"),
    ],
)
def test_bad_input_is_refused(arguments: dict[str, object], message: str) -> None:
    refused(message, paired_bootstrap, seed=0, **arguments)


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
