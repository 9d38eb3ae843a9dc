"""Counts and mean magnitudes of transforms, by hand."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from relook.errors import FileFormatError, RelookError
from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.studies import load_histogram, policy_histogram
from relook.studies.policy_histogram import GroupUse
from relook.studies.policy_histogram_figures import histogram_drawing, save_histogram_figure
from relook.studies.policy_histogram_tables import (
    histogram_csv,
    histogram_latex,
    histogram_markdown,
    histogram_table,
)

FINISH = Step("crop_flip", 4)
TURNED = SubPolicy((Step("rotate", 10), Step("rotate", 20)), FINISH)
BRIGHT = SubPolicy((Step("brightness", 6, -1), Step("invert", 3)), FINISH)
IDLE = SubPolicy((Step("identity", 9), Step("rotate", 0), Step("autocontrast", 0)), FINISH)
STRONG = (Policy((TURNED, TURNED, BRIGHT)), Policy((TURNED,)))
WEAK = (Policy((BRIGHT, IDLE, SubPolicy(), SubPolicy())),)
BOTH = policy_histogram({"RandAugment": STRONG, "vanilla": WEAK})


def test_counts_are_means_over_policies_and_magnitudes_over_uses() -> None:
    strong, weak = BOTH.groups
    # Two policies with 4 + 2 rotations, all uses of 10 and 20.
    assert strong.uses["rotate"] == GroupUse(3, 15)
    assert strong.uses["brightness"] == GroupUse(0.5, 6)
    assert strong.uses["invert"] == GroupUse(0.5, None)
    assert (strong.policies, strong.entries, strong.plain) == (2, 2, 0)
    assert (weak.policies, weak.entries, weak.plain) == (1, 4, 2)
    assert strong.use("cutout") == GroupUse(0, None)


def test_a_step_of_no_strength_is_the_identity_unless_it_acts() -> None:
    weak = BOTH.groups[1]
    assert weak.uses["identity"] == GroupUse(2, None)
    assert "rotate" not in weak.uses
    assert weak.uses["autocontrast"] == GroupUse(1, 0)
    assert weak.changing == 3
    # Brightness of 6 and autocontrast of 0; the inversion has no strength.
    assert weak.magnitude == pytest.approx(3)


def test_transforms_come_by_use_and_the_identity_last() -> None:
    assert BOTH.transforms == ("rotate", "brightness", "invert", "autocontrast", "identity")


_POOL = sample_pool("cifar", 40, seed=2)


@given(st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=9), min_size=1, max_size=4))
def test_every_step_of_every_policy_is_counted_once(picks: list[list[int]]) -> None:
    policies = [Policy(tuple(_POOL[pick] for pick in own)) for own in picks]
    (group,) = policy_histogram({"all": policies}).groups
    steps = sum(len(sub.steps) for policy in policies for sub in policy)
    assert sum(use.count for use in group.uses.values()) == pytest.approx(steps / len(policies))


def test_tables_hold_the_numbers() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(histogram_table(BOTH))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 of 4" in printed
    text = histogram_markdown(BOTH)
    assert "| rotate | 3 | 15.0 | 0 | – |" in text
    assert "| invert | 0.5 | – | 1 | – |" in text
    assert "| all that change the image | 4 | 13.7 | 3 | 3.0 |" in text
    assert r"rotate & 3 & 15.0 & 0 & -- \\" in histogram_latex(BOTH)
    lines = histogram_csv(BOTH).splitlines()
    assert "RandAugment,2,2,rotate,3,15" in lines
    assert "vanilla,1,4,plain,2," in lines


def test_a_histogram_comes_back_from_its_file(tmp_path: Path) -> None:
    BOTH.save(tmp_path / "statistics.json")
    assert load_histogram(tmp_path / "statistics.json") == BOTH
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(FileFormatError, match="run  relook statistics  again"):
        load_histogram(tmp_path / "bad.json")


def test_nothing_to_count_is_refused() -> None:
    with pytest.raises(RelookError, match="at least 1 group"):
        policy_histogram({})
    with pytest.raises(RelookError, match="group 'a': expected policies"):
        policy_histogram({"a": []})


def test_the_figure_leaves_out_what_changes_nothing(tmp_path: Path) -> None:
    drawing = histogram_drawing(BOTH)
    assert "rotate 3 times at 15.0" in drawing.description
    assert "identity" not in drawing.description
    files = save_histogram_figure(BOTH, tmp_path)
    assert [path.name for path in files] == ["policy_transforms.svg", "policy_transforms.png"]
    plain = policy_histogram({"plain": [Policy((SubPolicy(),))]})
    assert "nothing changes the image" in histogram_drawing(plain).description
