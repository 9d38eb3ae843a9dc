import importlib
import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import pytest
from PIL import Image
from tests.unit.report.example_run import example_comparison, example_policy

from relook.errors import MissingExtraError, install_command
from relook.policy.transform_counts import transform_statistics
from relook.report import style
from relook.report.figures import (
    comparison_drawings,
    inline_svg,
    save_drawing,
    trace_drawing,
    transforms_drawing,
)
from relook.report.series import curves, shown_range
from relook.report.summary import within_budget


def test_figures_are_files_that_open(tmp_path: Path) -> None:
    for drawing in comparison_drawings(example_comparison(), legend=True)[:2]:
        svg, png = save_drawing(drawing, tmp_path / "figures")
        root = ElementTree.fromstring(svg.read_text("utf-8"))  # noqa: S314
        assert root.tag.endswith("svg")
        assert "<dc:date>" not in svg.read_text("utf-8")
        with Image.open(png) as picture:
            assert picture.width > 1000
            assert len(picture.convert("RGB").getcolors(1 << 20) or []) > 50


def test_page_figures_follow_the_theme() -> None:
    for drawing in comparison_drawings(example_comparison(), legend=False):
        text = inline_svg(drawing)
        for color, variable in style.PAGE_VARIABLES.items():
            assert text.count(color) == text.count(f"var({variable}, {color})")
        assert "<text" in text
        assert "<style" not in text
        assert "DejaVu" not in text


def test_the_style_sheet_knows_every_colour() -> None:
    sheet = (files("relook.report") / "templates" / "report.css").read_text("utf-8")
    assert len(set(style.PAGE_VARIABLES.values())) == len(style.PAGE_VARIABLES)
    for color, variable in style.PAGE_VARIABLES.items():
        assert f"{variable}: {color};" in sheet
        assert sheet.count(f"{variable}: ") == 3  # light, dark, print


def test_method_labels_are_not_mathematics() -> None:
    comparison = example_comparison()
    rows = tuple(replace(row, label=r"$\frac{1$ <b>") for row in comparison.rows)
    drawings = comparison_drawings(replace(comparison, rows=rows), legend=True)
    assert r"$\frac{1$ &lt;b&gt;" in inline_svg(drawings[0])


def test_drawing_leaves_the_users_settings_alone() -> None:
    with mpl.rc_context({"font.size": 33.0, "lines.linewidth": 9.0}):
        strange = inline_svg(trace_drawing([-0.5, -0.4]))
        assert mpl.rcParams["font.size"] == 33.0
    assert strange == inline_svg(trace_drawing([-0.5, -0.4]))


def test_what_is_not_there_is_not_drawn() -> None:
    comparison = replace(example_comparison(), reliability={}, selective=None)
    plain = tuple(row for row in comparison.rows if row.method == "plain")
    kept = ("cll", "accuracy")
    less = [replace(row, metrics={n: row.metrics[n] for n in kept}) for row in comparison.rows]
    one_method = replace(comparison, rows=plain, budgets=(1,))
    for found, more in ((one_method, ["temperature"]), (replace(comparison, rows=tuple(less)), [])):
        drawings = comparison_drawings(found, legend=True)
        assert [drawing.name for drawing in drawings] == [*kept, "frontier", *more]
        assert all(inline_svg(drawing) for drawing in drawings)


def test_transforms_are_told_in_words() -> None:
    drawing = transforms_drawing(transform_statistics(example_policy()))
    assert "sharpness 8 times, magnitude 4.3" in drawing.description


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "relook.report.figures")
    with pytest.raises(MissingExtraError, match=re.escape(install_command("report"))):
        importlib.import_module("relook.report.figures")


def test_the_policy_stands_out_and_no_two_methods_look_alike() -> None:
    comparison = example_comparison()
    rows = [replace(comparison.rows[0], method=f"m{i}", label=f"M {i}") for i in range(20)]
    styles = style.method_styles((row.method, row.label) for row in (*comparison.rows, *rows))
    looks = {(one.color, one.marker, one.dashes) for one in styles.values()}
    assert len(looks) == len(styles) == 30
    assert next(iter(styles.values())).is_policy
    assert [one.color for one in styles.values()].count(style.POLICY_COLOR) == 1


def test_bands_are_intervals_of_one_run_and_deviations_of_several() -> None:
    row = example_comparison().row("gps", 5)
    assert row is not None
    assert row.over_plain is not None
    single = next(c for c in curves(example_comparison(), "cll") if c.style.is_policy).points[4]
    difference = row.over_plain["cll"]
    assert single.value == row.metrics["cll"].mean
    assert single.low == pytest.approx(single.value - (difference.estimate - difference.low))
    assert single.high == pytest.approx(single.value + (difference.high - difference.estimate))
    several = next(c for c in curves(example_comparison(runs=5), "cll") if c.style.is_policy)
    assert several.points[4].high - several.points[4].value == pytest.approx(0.0007)


def test_equal_views_are_one_point() -> None:
    comparison = example_comparison()
    points = curves(comparison, "cll")[0].points
    assert [point.views for point in points] == list(range(1, 12))
    last = comparison.row("gps", 20)
    assert last is not None
    assert points[-1].value == last.metrics["cll"].mean


def test_within_a_budget_a_method_uses_what_it_can() -> None:
    rows = {row.method: row for row in within_budget(example_comparison(), 9)}
    assert rows["cf"].budget == 7
    assert rows["d4"].views == 8
    assert rows["plain"].views == 1
    assert "10c" not in rows


def test_a_hopeless_method_does_not_flatten_the_others() -> None:
    drawn = curves(example_comparison(), "cll")
    shown = shown_range(drawn)
    assert "RandAugment (MTrain)" in shown.leaving
    for curve in drawn:
        if curve.style.is_policy or curve.style.is_plain:
            assert all(shown.low < point.low <= point.high < shown.high for point in curve.points)
    everything = shown_range(drawn, everything=True)
    assert everything.leaving == ()
    assert everything.low < min(point.low for curve in drawn for point in curve.points)
