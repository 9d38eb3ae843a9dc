import numpy as np
import pytest
from numpy.typing import NDArray

from relook.evaluation.set_sizes import FEWEST, report_sets


def sets_of(sizes: NDArray[np.int64], classes: int = 20) -> NDArray[np.bool_]:
    """Sets of the first so many classes."""
    return np.asarray(np.arange(classes) < sizes[:, None])


def test_coverage_and_sizes_are_counted_and_easy_images_stand_apart_from_hard_ones() -> None:
    plain_sizes = np.repeat([1, 2, 12], [200, 100, FEWEST - 1])
    sizes = np.maximum(plain_sizes - 1, 0)
    labels = np.zeros(len(sizes), np.int64)
    labels[200:250] = 1
    report = report_sets(sets_of(sizes), sets_of(plain_sizes), labels)
    assert [(part.plain_size, part.images) for part in report.parts] == [
        ("0 or 1", 200),
        ("2 or 3", 100),
        ("over 10", FEWEST - 1),
    ]
    whole, easy, hard = report.figures, report.parts[0].figures, report.parts[1].figures
    assert whole is not None
    assert easy is not None
    assert hard is not None
    assert report.parts[2].figures is None  # too few to tell
    assert (easy.coverage.estimate, easy.empty, easy.plain_empty) == (0, 1, 0)
    assert (easy.coverage.low, easy.plain_coverage.high) == (0, 1)
    assert easy.coverage.high < 0.05
    changes = hard.coverage_change, hard.size_change
    found = [one.estimate for one in (hard.coverage, hard.plain_coverage, *changes)]
    assert found == pytest.approx([0.5, 1, -0.5, -1])
    assert whole.size.estimate == pytest.approx(sizes.mean())
    # Each of the three parts is looked at: its interval is that much surer.
    levels = [whole.coverage.confidence, hard.coverage.confidence]
    assert levels == pytest.approx([0.95, 1 - 0.05 / 3])


def test_images_of_a_group_count_as_one() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    sizes = 1 + (rng.uniform(size=40) < 0.5)[groups].astype(np.int64)
    labels = np.ones(400, np.int64)
    alone, grouped = (
        report_sets(sets_of(sizes), sets_of(sizes), labels, one).figures for one in (None, groups)
    )
    assert alone is not None
    assert grouped is not None
    for name in ("coverage", "size"):
        wide, narrow = getattr(grouped, name), getattr(alone, name)
        assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert report_sets(sets_of(sizes), sets_of(sizes), labels, groups // 2).figures is None
