"""The paper's tables from comparisons whose figures are written by hand."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest
from tests.unit.report.example_run import example_comparison

from relook.evaluation.comparison import Comparison, Measured, Row
from relook.studies.paper_tables import (
    PaperTable,
    corruption_table,
    in_domain_table,
    paper_csv,
    paper_latex,
    paper_markdown,
)
from relook.studies.robustness_result import Robustness, ShiftRow


def row(method: str, budget: int, cll: float, accuracy: float, spread: float = 0.0) -> Row:
    metrics = {"cll": Measured(cll, spread), "accuracy": Measured(accuracy, spread)}
    return Row(method, method, budget, budget, float(budget), metrics)


@pytest.fixture
def comparison() -> Comparison:
    rows = (
        row("gps", 5, -0.552, 0.8349),
        row("gps", 10, -0.541, 0.8361, 0.0012),
        row("plain", 1, -0.626, 0.8167),
        row("cf", 5, -0.588, 0.8280),
        row("cf", 7, -0.580, 0.8290),
        row("cf", 10, -0.579, 0.8365),
        row("5c", 5, -0.600, 0.8200),
    )
    return replace(example_comparison(), rows=rows, budgets=(5, 10))


@pytest.fixture
def table(comparison: Comparison) -> PaperTable:
    other = replace(comparison, rows=tuple(r for r in comparison.rows if r.method != "5c"))
    return in_domain_table({("CIFAR-100", "VGG"): comparison, ("CIFAR-10", "A|B_1"): other})


def test_columns_are_the_papers(table: PaperTable) -> None:
    assert table.columns == (
        ("plain", 1), ("5c", 5), ("cf", 5), ("cf", 10), ("gps", 5), ("gps", 10)
    )  # fmt: skip
    assert [block.title for block in table.blocks] == ["Calibrated log-likelihood", "Accuracy (%)"]


def test_budgets_limit_the_columns(comparison: Comparison) -> None:
    small = in_domain_table({("CIFAR-100", "VGG"): comparison}, (10,))
    assert small.columns == (("plain", 1), ("5c", 5), ("cf", 10), ("gps", 10))


def test_markdown_marks_the_best_of_each_row(table: PaperTable) -> None:
    lines = [line for line in paper_markdown(table).splitlines() if line.startswith("|")]
    assert lines[0] == "| data | model | CC | 5C | CF 5 | CF 10 | GPS 5 | GPS 10 |"
    assert lines[2] == (
        "| CIFAR-100 | VGG | −0.626 | −0.600 | −0.588 | −0.579 | −0.552 | **−0.541 ± 0.001** |"
    )
    assert lines[3].startswith(r"| CIFAR-10 | A\|B_1 | −0.626 | – | ")
    assert "| 81.67 | 82.00 | 82.80 | **83.65** | 83.49 | 83.61 ± 0.12 |" in lines[6]


def test_csv_holds_every_number(table: PaperTable) -> None:
    heads, first, second = csv.reader(io.StringIO(paper_csv(table)))
    assert first[heads.index("Calibrated log-likelihood: GPS 10")] == "-0.541"
    assert first[heads.index("Accuracy (%): GPS 10 deviation")] == "0.12"
    assert second[heads.index("Accuracy (%): 5C 5")] == ""


def test_latex_has_as_many_cells_as_columns(table: PaperTable) -> None:
    lines = paper_latex(table).splitlines()
    body = [line for line in lines if line.startswith(("CIFAR", "Dataset", " & "))]
    assert r"\begin{tabular}{llllllllllllll}" in lines
    rows = [line for line in body if line.startswith("CIFAR")]
    assert [line.count(" & ") for line in rows] == [13, 13]
    assert r"A|B\_1" in rows[1]
    assert r"\textbf{$-$0.541 {\tiny$\pm$0.001}}" in rows[0]
    assert r"\multicolumn{2}{c}{GPS}" in next(line for line in lines if "Dataset" in line)
    assert r"\cmidrule(l){3-8} \cmidrule(l){9-14}" in lines
    assert r"\label{table:acc-nll}" in lines
    assert lines.count(r"\midrule") == 2  # below the heading, and between the data sets


def shifts(*, normalised: bool) -> Robustness:
    def one(method: str, budget: int, error: float) -> ShiftRow:
        names = dict.fromkeys(("fog", "snow"), (error,) * 5)
        muce = Measured(error, 0.0)
        return ShiftRow(method, method, budget, budget, 0.1, -0.1, names, names, muce)

    rows = (one("plain", 1, 0.35), one("cf", 5, 0.34), one("gps", 5, 0.319))
    both = ("fog", "snow")
    return Robustness(rows, (5,), both, (1, 2, 3, 4, 5), 10, normalised, True, {})


def test_corruption_errors_are_percentages_the_lowest_best() -> None:
    text = paper_markdown(corruption_table({("CIFAR-100-C", "VGG"): shifts(normalised=False)}))
    assert "| CIFAR-100-C | VGG | 35.000 | 34.000 | **31.900** |" in text
    assert "muCE" in text


def test_with_alexnets_errors_it_is_mce() -> None:
    text = paper_markdown(corruption_table({("ImageNet-C", "R50"): shifts(normalised=True)}))
    # By hand: the mean of 0.35 / 0.819324 (fog) and 0.35 / 0.866816 (snow).
    assert "| ImageNet-C | R50 | 0.415 |" in text
    assert "(mCE)" in text
