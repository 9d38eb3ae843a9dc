"""A study's page: whatever the names are, it is sound HTML that loads nothing."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.report.example_run import example_comparison
from tests.unit.report.html_reader import read_html

from relook.evaluation.comparison import Comparison
from relook.evaluation.results import Result, Results, join
from relook.report.tables import Cell, Column, Table
from relook.studies.in_domain import methods_drawing
from relook.studies.reproduce.page import Section, study_html, study_markdown, write_study
from relook.studies.robustness import STUDY as ROBUSTNESS

EVIL = '<img src=x onerror="1"> & **bold** | `code`'
SHOWN = Table(
    "Some words & more.",
    (Column("name", number=False), Column("value")),
    (((Cell("<i>a</i> | b"), Cell("1.5", "0.1", bold=True)),),),
)
FILES = {"md": "Some words.\n", "csv": "name,value\na,1.5\n", "tex": "\\begin{tabular}"}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return example_comparison()


def section(comparison: Comparison) -> Section:
    both = join({EVIL: comparison.results(), "other": comparison.results()})
    drawing = methods_drawing("in-domain", EVIL, both)
    return Section("in-domain", EVIL, "Figure x", EVIL, (SHOWN,), FILES, "", (drawing,))


def test_everything_is_escaped(comparison: Comparison) -> None:
    page = study_html([section(comparison)], EVIL, [EVIL])
    read_html(page)
    assert "<img" not in page
    assert "<i>a</i>" not in page
    assert '<td class="number"><b>1.5</b>' in page
    assert '<span class="interval">±0.1</span>' in page
    assert "&lt;i&gt;a&lt;/i&gt; | b" in page
    assert "<script" not in page
    assert not re.search(r'(src|href)="(https?:)?//', page)


def test_markdown_takes_names_as_text(comparison: Comparison) -> None:
    text = study_markdown([section(comparison)], EVIL, [EVIL])
    assert text.startswith(r"# \<img src=x onerror=")
    assert "![" in text
    assert "figures/in-domain.png" in text


def test_files_are_written_and_linked(comparison: Comparison, tmp_path: Path) -> None:
    page = write_study([section(comparison)], "Mine", ["one"], tmp_path)
    assert page == tmp_path / "index.html"
    assert (tmp_path / "tables" / "in-domain.tex").read_text() == "\\begin{tabular}"
    for link in re.findall(r'href="([^"#]+)"', page.read_text(encoding="utf-8")):
        assert (tmp_path / link).is_file(), link
    before = page.read_bytes()
    write_study([section(comparison)], "Mine", ["one"], tmp_path)
    assert page.read_bytes() == before


def test_long_tables_are_folded(comparison: Comparison) -> None:
    long = replace(SHOWN, sections=SHOWN.sections * 30)
    page = study_html([Section("x", "X", "Table x", "words", (long,), FILES)], "Mine", [])
    assert "<details><summary>" in page
    assert "<details>" not in study_html([section(comparison)], "Mine", [])


def test_a_method_looks_the_same_in_every_figure(comparison: Comparison) -> None:
    results = comparison.results()
    rows = [
        Result("muce", row.metrics["accuracy"].mean, keys=keys)
        for row in comparison.rows
        if row.method in ("plain", "cf", "gps") and row.budget in (1, *comparison.budgets)
        for keys in [{"method": row.method, "budget": row.budget, "views": row.views}]
    ]
    both = join({"m": Results("robustness", tuple(rows)), "n": Results("robustness", tuple(rows))})
    drawn = [
        methods_drawing("a", "A", results),
        methods_drawing("b", "B", results, methods=("cf", "gps"), metrics=("cll",)),
        *ROBUSTNESS.figures(both),
    ]
    looks = []
    for drawing in drawn:
        (legend,) = drawing.figure.legends
        handles = {h.get_label(): h.get_color() for h in legend.legend_handles}  # type: ignore[union-attr]
        looks.append(handles["random crops (CF)"])
    assert len(set(looks)) == 1


def test_panels_name_what_lies_below_them(comparison: Comparison) -> None:
    metrics = {
        name: replace(one, mean=one.mean - 50.0) for name, one in comparison.rows[0].metrics.items()
    }
    low = replace(comparison.rows[0], method="mtrain", label="RandAugment (MTrain)", budget=5,
                  views=5, metrics=metrics, over_plain=None)  # fmt: skip
    lower = replace(comparison, rows=(*comparison.rows, low))
    drawing = methods_drawing("a", "A", join({"m": lower.results()}))
    titles = [axes.get_title(loc="right") for axes in drawing.figure.axes]
    assert all("below:" in title and "MTrain" in title for title in titles)
