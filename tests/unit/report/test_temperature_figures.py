from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.report.example_run import example_comparison

from relook.errors import RelookError
from relook.policy import Policy, Step, SubPolicy
from relook.studies.temperature_figures import (
    carried_temperatures,
    save_temperature_figure,
    scored_temperatures,
    temperature_drawing,
)


def test_points_are_the_policys_rows_by_views() -> None:
    comparison = example_comparison()
    points = scored_temperatures(comparison)
    expected = {
        row.views: row.metrics["temperature"].mean for row in comparison.rows if row.method == "gps"
    }
    assert dict(points) == expected
    assert [views for views, _ in points] == sorted(expected)


def test_the_policys_own_temperatures_are_those_of_the_last_entry_a_budget_takes() -> None:
    one, two = SubPolicy((Step("rotate", 5, draws={"sign": 1.0}),)), SubPolicy()
    # One view, again the same view, then a second one: three entries, two distinct views.
    policy = Policy((one, one, two), (1.5, 1.4, 1.1))
    comparison = replace(example_comparison(), policy=policy)
    found = carried_temperatures(comparison, [(1, 9.0), (2, 9.0)])
    assert found == [(1, 1.4), (2, 1.1)]
    bare = replace(comparison, policy=replace(policy, temperatures=None))
    assert carried_temperatures(bare, [(1, 9.0)]) == []


def test_a_line_a_model_and_one_for_what_the_search_found(tmp_path: Path) -> None:
    comparisons = {"VGG16": example_comparison(), "ResNet": example_comparison()}
    drawing = temperature_drawing(comparisons)
    (axes,) = drawing.figure.axes
    assert len([line for line in axes.lines if len(line.get_xdata())]) == 4  # type: ignore[arg-type]
    assert "VGG16 from " in drawing.description
    files = save_temperature_figure(comparisons, tmp_path)
    assert [path.name for path in files] == ["temperature_views.svg", "temperature_views.png"]


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(RelookError, match="expected comparisons with temperatures"):
        temperature_drawing({})
