"""Counts and mean magnitudes of transforms, by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused
from tests.unit.studies.shown import drawn, printed

from relook.evaluation.results import Results
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.transform_counts import transform_statistics
from relook.report.latex import latex
from relook.studies.statistics import ALL, STUDY, statistics, tables

FINISH = Step("crop_flip", 4)
TURNED = SubPolicy((Step("rotate", 10), Step("rotate", 20)), FINISH)
BRIGHT = SubPolicy((Step("brightness", 6, -1), Step("invert", 3)), FINISH)
IDLE = SubPolicy((Step("identity", 9), Step("rotate", 0), Step("autocontrast", 0)), FINISH)
STRONG = (Policy((TURNED, TURNED, BRIGHT)), Policy((TURNED,)))
WEAK = (Policy((BRIGHT, IDLE, SubPolicy(), SubPolicy())),)
BOTH = statistics({"RandAugment": STRONG, "vanilla": WEAK})


def use(group: str, transform: str, found: Results = BOTH) -> tuple[float, float | None]:
    """Return how often a policy uses a transform, and how strongly."""
    strength = found.get(group=group, transform=transform, metric="magnitude")
    count = found.one(group=group, transform=transform, metric="count")
    return count.value, None if strength is None else strength.value


def test_counts_are_means_over_policies_and_magnitudes_over_uses() -> None:
    # Two policies with 4 + 2 rotations, all uses of 10 and 20.
    assert use("RandAugment", "rotate") == (3, 15)
    assert use("RandAugment", "brightness") == (0.5, 6)
    assert use("RandAugment", "invert") == (0.5, None)
    for group, expected in (("RandAugment", (2, 2, 0)), ("vanilla", (1, 4, 2))):
        own = BOTH.where(group=group)
        entries, plain = own.one(metric="entries"), own.one(metric="plain_entries")
        assert (entries["policies"], entries.value, plain.value) == expected
    assert use("RandAugment", "autocontrast") == (0, None)


def test_a_step_of_no_strength_is_the_identity_unless_it_acts() -> None:
    assert use("vanilla", "identity") == (2, None)
    assert use("vanilla", "rotate") == (0, None)
    assert use("vanilla", "autocontrast") == (1, 0)
    # Brightness of 6 and autocontrast of 0; the inversion has no strength.
    assert use("vanilla", ALL) == (3, 3)


def test_a_report_and_the_statistics_count_alike() -> None:
    found = statistics({"one": WEAK})
    counted = {one.transform: one.count for one in transform_statistics(WEAK[0])}
    assert counted == {"identity": 2, "brightness": 1, "invert": 1, "autocontrast": 1}
    assert {name: use("one", name, found)[0] for name in counted} == counted


def test_transforms_come_by_use_and_the_identity_last() -> None:
    expected = ["rotate", "brightness", "invert", "autocontrast", "identity", ALL]
    assert BOTH.values("transform") == expected


_POOL = sample_pool("cifar", 40, seed=2)


@given(st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=9), min_size=1, max_size=4))
def test_every_step_of_every_policy_is_counted_once(picks: list[list[int]]) -> None:
    policies = [Policy(tuple(_POOL[pick] for pick in own)) for own in picks]
    found = statistics({"all": policies}).where(metric="count")
    steps = sum(len(sub.steps) for policy in policies for sub in policy)
    counted = [row.value for row in found.rows if row["transform"] != ALL]
    assert sum(counted) == pytest.approx(steps / len(policies))


def test_tables_hold_the_numbers() -> None:
    (table,) = tables(BOTH)
    assert "2 of 4" in printed(table)
    text = STUDY.markdown(BOTH)
    assert "| rotate | 3 | 15.0 | 0 | – |" in text
    assert "| invert | 0.5 | – | 1 | – |" in text
    assert "| all that change the image | 4 | 13.7 | 3 | 3.0 |" in text
    assert r"rotate & 3 & 15.0 & 0 & -- \\" in latex(table)
    assert r"\multicolumn{2}{c}{vanilla}" in latex(table)
    lines = BOTH.to_csv().splitlines()
    assert "statistics,RandAugment,2,rotate,count,3.0,,,0.0" in lines
    assert "statistics,RandAugment,2,rotate,magnitude,15.0,,,0.0" in lines
    assert "statistics,vanilla,1,,plain_entries,2.0,,,0.0" in lines


def test_nothing_to_count_is_refused() -> None:
    refused("at least 1 group", statistics, {})
    refused("group 'a': expected policies", statistics, {"a": []})


def test_the_figure_leaves_out_what_changes_nothing(tmp_path: Path) -> None:
    (drawing,) = STUDY.figures(BOTH)
    assert "rotate 3 times at 15.0" in drawing.description
    assert "identity" not in drawing.description
    assert drawn(STUDY, BOTH, tmp_path) == ["policy_transforms"]
    plain = statistics({"plain": [Policy((SubPolicy(),))]})
    assert "nothing changes the image" in STUDY.figures(plain)[0].description
