"""The paper's tables and figures from comparisons whose figures are written by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.support import refused
from tests.unit.report.example_run import example_comparison
from tests.unit.studies.shown import drawn

from relook.data import load_data
from relook.evaluation.compare import compare
from relook.evaluation.comparison import METRICS_OF_A_ROW, Comparison, Measured, Row
from relook.evaluation.results import Result, Results, join
from relook.foundation.wording import with_minus_signs
from relook.models.predictors import TorchPredictor
from relook.models.small import new_small
from relook.policy import Policy, Step, SubPolicy
from relook.report.latex import latex
from relook.report.tables import markdown
from relook.studies.in_domain import (
    IN_DOMAIN,
    TEMPERATURE,
    metrics_table,
    paper_table,
    tables,
    temperature_drawing,
    with_budgets,
)
from relook.studies.robustness import STUDY as ROBUSTNESS


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
def results(comparison: Comparison) -> Results:
    first = comparison.results().labelled(data="CIFAR-100", model="VGG")
    other = replace(comparison, rows=tuple(r for r in comparison.rows if r.method != "5c"))
    second = other.results().labelled(data="CIFAR-10", model="A|B_1")
    return replace(first, rows=(*first.rows, *second.rows))


def test_columns_are_the_papers(results: Results) -> None:
    found = tables(results)
    heads = ["CC", "5C", "CF 5", "CF 10", "GPS 5", "GPS 10"]
    assert [column.head for column in found[0].columns[2:]] == heads
    assert [table.title for table in found] == ["Calibrated log-likelihood", "Accuracy (%)"]


def test_budgets_limit_the_columns(results: Results) -> None:
    (small, _) = tables(with_budgets(results, (10,)))
    assert [column.head for column in small.columns[2:]] == ["CC", "5C", "CF 10", "GPS 10"]
    assert with_budgets(results, ()) == results


def test_markdown_marks_the_best_of_each_row(results: Results) -> None:
    lines = [line for line in IN_DOMAIN.markdown(results).splitlines() if line.startswith("|")]
    assert lines[0] == "| data | model | CC | 5C | CF 5 | CF 10 | GPS 5 | GPS 10 |"
    assert lines[2] == (
        "| CIFAR-100 | VGG | −0.626 | −0.600 | −0.588 | −0.579 | −0.552 | **−0.541±0.001** |"
    )
    assert lines[3].startswith(r"| CIFAR-10 | A\|B_1 | −0.626 | – | ")
    assert "| 81.67 | 82.00 | 82.80 | **83.65** | 83.49 | 83.61±0.12 |" in lines[6]


def test_latex_has_as_many_cells_as_columns(results: Results) -> None:
    lines = latex(paper_table(results)).splitlines()
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


def shifts(*, normalised: bool) -> Results:
    def one(method: str, budget: int, error: float) -> list[Result]:
        keys = {"method": method, "budget": budget, "images": 10}
        values = {"muce": error}
        if normalised:  # by hand: the mean of the errors over AlexNet's for fog and snow
            values["mce"] = (error / 0.819324 + error / 0.866816) / 2
        return [Result(name, value, keys=keys) for name, value in values.items()]

    rows = (*one("plain", 1, 0.35), *one("cf", 5, 0.34), *one("gps", 5, 0.319))
    return Results("robustness", rows)


@pytest.mark.parametrize(
    ("data", "normalised", "line", "title"),
    [
        ("CIFAR-100-C", False, "| CIFAR-100-C | VGG | 35.000 | 34.000 | **31.900** |", "muCE"),
        ("ImageNet-C", True, "| ImageNet-C | VGG | 0.415 |", "(mCE)"),
    ],
)
def test_corruption_errors_of_models_the_lowest_best(
    data: str, normalised: bool, line: str, title: str
) -> None:
    first = shifts(normalised=normalised).labelled(data=data, model="VGG")
    other = first.labelled(model="other")
    text = ROBUSTNESS.markdown(replace(first, rows=(*first.rows, *other.rows)))
    assert line in text
    assert title in text


@pytest.fixture(scope="module")
def scored() -> Comparison:
    policy = Policy((SubPolicy(), SubPolicy((Step("invert", 0),)), SubPolicy((Step("flip", 0),))))
    return compare(
        TorchPredictor(new_small(width=4, seed=0).eval(), classes=10),
        load_data("digits:test").subset(np.arange(60)),
        policy,
        recipe="small",
        budgets=[1, 2, 3],
        methods=["flip", "cf"],
        measure_cost=False,
    )


def test_every_metric_has_a_line_for_each_method_at_the_budgets(scored: Comparison) -> None:
    both = join({"A_1": scored.results(), "B": scored.results()}).labelled(data="digits")
    table = metrics_table(with_budgets(both, [3]))
    methods = [(line[1].text, line[2].text, int(line[3].text)) for line in table.lines]
    own = [("plain", 1), ("flip", 2), ("cf", 3), ("gps", 3)]
    labels = {row.method: row.label for row in scored.rows}
    assert methods == [(model, labels[m], views) for model in ("A_1", "B") for m, views in own]
    heads = [column.head for column in table.columns]
    assert len(heads) == 4 + len(METRICS_OF_A_ROW) + 2
    for line, (method, budget) in zip(table.lines, own, strict=False):
        expected = scored.row(method, budget)
        assert expected is not None
        cll = f"{expected.metrics['cll'].mean:.4f}".replace("-", "−")
        assert line[heads.index("cLL")].text == cll
        if expected.over_plain is not None:
            low = f"{expected.over_plain['cll'].low:+.4f}".replace("-", "−")
            assert line[heads.index("cLL − plain image")].interval.startswith(f"[{low}, ")
    lines = markdown(table).splitlines()
    assert len(lines) == 2 + len(methods)
    assert len({line.count(" | ") for line in lines}) == 1
    assert latex(table).count("A\\_1 &") == 1  # named once, above its methods
    assert len(metrics_table(both).lines) > len(methods)


def test_numbers_get_a_minus_sign_and_names_keep_their_hyphen() -> None:
    text = with_minus_signs("ResNet-44 on WRN-16-1: -0.5 [-0.7, -0.1], 1-2")
    assert text == "ResNet-44 on WRN-16-1: −0.5 [−0.7, −0.1], 1-2"


def test_temperatures_of_a_comparison_are_the_policys_by_views() -> None:
    comparison = example_comparison()
    found = comparison.results().where(method="gps", metric="temperature")
    expected = {
        row.views: row.metrics["temperature"].mean for row in comparison.rows if row.method == "gps"
    }
    assert {row["views"]: row.value for row in found.rows} == expected


def test_the_policys_own_temperatures_are_those_of_the_last_entry_a_budget_takes() -> None:
    one, two = SubPolicy((Step("rotate", 5, draws={"sign": 1.0}),)), SubPolicy()
    # One view, again the same view, then a second one: three entries, two distinct views.
    policy = Policy((one, one, two), (1.5, 1.4, 1.1))
    rows = (row("gps", 1, -1.0, 0.5), row("gps", 2, -1.0, 0.5))
    comparison = replace(example_comparison(), policy=policy, rows=rows)
    found = comparison.results().where(metric="search_temperature").rows
    assert [(one["views"], one.value) for one in found] == [(1, 1.4), (2, 1.1)]
    bare = replace(comparison, policy=replace(policy, temperatures=None))
    assert not bare.results().where(metric="search_temperature")


def test_a_line_a_model_and_one_for_what_the_search_found(tmp_path: Path) -> None:
    one = example_comparison().results()
    both = join({"VGG16": one, "ResNet": one})
    drawing = temperature_drawing(both)
    (axes,) = drawing.figure.axes
    assert len([line for line in axes.lines if len(line.get_xdata())]) == 4  # type: ignore[arg-type]
    assert "VGG16 " in drawing.description
    assert drawn(TEMPERATURE, both, tmp_path) == ["temperature_views"]


def test_nothing_to_draw_is_refused() -> None:
    refused("expected results to draw, got none", temperature_drawing, Results("comparison", ()))
