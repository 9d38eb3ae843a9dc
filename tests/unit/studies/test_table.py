"""The table of studies, and a toy study that gets everything from its one function and row."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from relook.cli.study.shared import ResultOptions
from relook.errors import FileFormatError
from relook.evaluation.results import Results, load_results, measured
from relook.foundation.registry import by_name
from relook.report.comparison_tables import method_table
from relook.report.figures import Drawing
from relook.report.latex import latex
from relook.report.series import curves_of
from relook.report.shapes import METHODS, Panel, curves_drawing
from relook.report.tables import Table
from relook.studies.study import Study
from relook.studies.table import STUDIES


def toy() -> Results:
    """Measure two methods at two budgets, in two runs each."""
    rows = [
        measured("kindness", values, method=method, label=method, budget=budget, views=budget)
        for method, budget, values in (
            ("cf", 1, (0.1, 0.3)),
            ("cf", 2, (0.2, 0.4)),
            ("gps", 1, (0.2, 0.2)),
            ("gps", 2, (0.6, 0.8)),
        )
    ]
    return Results("toy", tuple(rows), {"seed": 0}, "The policy is the kindest.")


def table(results: Results) -> Table:
    return method_table(results, ("kindness",), {}, title="kindness by views", label="table:toy")


def figures(results: Results) -> Sequence[Drawing]:
    panel = Panel("", "kindness", curves_of(results, "kindness", METHODS))
    return [curves_drawing("toy", "Kindness against views", [[panel]])]


TOY = Study("toy", "A toy", "no figure", "How kind?", lambda r: [table(r)], table, figures)


def test_a_toy_study_has_tables_figures_csv_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {kind: tmp_path / f"table.{kind}" for kind in ("csv", "md", "tex")}
    options = ResultOptions(files["csv"], files["md"], files["tex"])
    options.show(TOY, toy(), tmp_path / "out")
    printed = capsys.readouterr()
    assert "0.7000±0.1414" in printed.out
    assert "The policy is the kindest." in printed.out
    assert "toy.json, figures/" in printed.err
    assert files["csv"].read_text() == toy().to_csv()
    assert "| gps | 2 | 0.7000±0.1414 |" in files["md"].read_text()
    assert files["tex"].read_text() == latex(table(toy()))
    assert load_results(tmp_path / "out" / "toy.json", "toy") == toy()
    drawn = sorted(path.name for path in (tmp_path / "out" / "figures").iterdir())
    assert drawn == ["toy.png", "toy.svg"]
    ResultOptions(as_json=True, figures=False).show(TOY, toy(), None)
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 4


def test_a_study_is_in_the_table_once() -> None:
    assert by_name((*STUDIES.values(), TOY))["toy"] is TOY
    with pytest.raises(ValueError, match="in its table twice"):
        by_name((*STUDIES.values(), STUDIES["transfer"]))


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_says_what_it_is_and_refuses_other_files(name: str, tmp_path: Path) -> None:
    study = STUDIES[name]
    assert study.title
    assert study.paper
    assert study.words.endswith(".")
    for text in ("{}", "[]", '{"format": "else"}'):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileFormatError, match=f"run  relook study {name}  again"):
            load_results(tmp_path / "bad.json", name)
