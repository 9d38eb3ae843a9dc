"""The tidy table that every comparison and study gives."""

import csv
import io
import sys
from pathlib import Path

import pytest
from tests.support import refused
from tests.unit.report.example_run import example_comparison

from relook.errors import FileFormatError, MissingExtraError
from relook.evaluation.results import Result, Results, join, load_results, measured

ROWS = (
    measured("cll", [-0.5, -0.7], method="cf", budget=5, views=5),
    Result("accuracy", 0.8, keys={"method": "cf", "budget": 5, "views": 5}),
    Result("cll", -0.5, keys={"method": "gps", "budget": 5, "views": 4}),
    Result("cll", 0.1, 0.05, 0.15, keys={"method": "gps", "budget": 5, "views": 4, "versus": "cf"}),
)
TOY = Results("toy", ROWS, {"seed": 0}, "It helps.")


def test_a_lookup_finds_the_level_unless_a_difference_is_asked_for() -> None:
    assert TOY.one(method="gps", metric="cll").value == -0.5
    assert TOY.one(method="gps", metric="cll", versus="cf").is_clear
    assert TOY.get(method="gps", metric="brier") is None
    assert TOY.one(method="cf", metric="cll").deviation == pytest.approx(0.2 / 2**0.5)
    refused("toy: expected a result with method 'tta', got none", TOY.one, method="tta")


def test_rows_are_chosen_and_grouped() -> None:
    assert len(TOY.where(method="gps")) == 2
    assert len(TOY.where(method=("gps", "cf"), metric="cll", versus=None)) == 2
    assert TOY.values("method") == ["cf", "gps"]
    assert [(keys, len(own)) for keys, own in TOY.groups("method")] == [(("cf",), 2), (("gps",), 2)]


@pytest.mark.parametrize("name", ["=1+1", "+cmd", "-2", "@SUM(A1)", "\t=1", "\r=1"])
def test_csv_is_tidy_and_holds_no_formulas(name: str) -> None:
    lines = list(csv.DictReader(io.StringIO(TOY.labelled(model=name).to_csv(), newline="")))
    assert list(lines[0])[:6] == ["study", "model", "method", "budget", "views", "versus"]
    assert list(lines[0])[-5:] == ["metric", "value", "low", "high", "deviation"]
    assert {line["model"] for line in lines} == {f"'{name.strip()}"}
    assert [float(line["value"]) for line in lines] == pytest.approx([-0.6, 0.8, -0.5, 0.1])
    assert [line["low"] for line in lines] == ["", "", "", "0.05"]


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    TOY.save(tmp_path / "toy.json")
    assert load_results(tmp_path / "toy.json", "toy") == TOY
    TOY.save(tmp_path / "toy.csv")
    assert (tmp_path / "toy.csv").read_text() == TOY.to_csv()
    refused(r"ends in \.json, \.csv or \.parquet", TOY.save, tmp_path / "toy.txt")
    with pytest.raises(
        FileFormatError, match=r"expected a study of other.*run  relook study other  again"
    ):
        load_results(tmp_path / "toy.json", "other")
    old = (tmp_path / "toy.json").read_text().replace('"version": 2', '"version": 1')
    (tmp_path / "old.json").write_text(old)
    with pytest.raises(FileFormatError, match=r"version 1.*run  relook study toy  again"):
        load_results(tmp_path / "old.json", "toy")


def test_parquet_holds_the_same_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    TOY.save(tmp_path / "toy.parquet")
    table = parquet.read_table(tmp_path / "toy.parquet")
    assert table.column_names == TOY.columns
    assert table.to_pylist() == TOY.records()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused("parquet", TOY.save, tmp_path / "toy.parquet", error=MissingExtraError)


def test_models_are_joined_into_one_table() -> None:
    both = join({"A": TOY, "B": TOY})
    assert both.values("model") == ["A", "B"]
    assert both.sentence == "A: It helps.\nB: It helps."
    assert both.one(model="B", method="cf", metric="accuracy").value == 0.8


def test_a_comparison_gives_its_numbers() -> None:
    comparison = example_comparison()
    results = comparison.results()
    for row in comparison.rows:
        own = results.where(method=row.method, budget=row.budget)
        for name, one in row.metrics.items():
            found = own.one(metric=name)
            assert (found.value, found.deviation) == (one.mean, one.deviation)
        for kind, intervals in (("plain", row.over_plain), ("rival", row.over_rival)):
            for name, interval in (intervals or {}).items():
                found = own.one(metric=name, versus=kind)
                assert (found.value, found.low, found.high) == (
                    interval.estimate,
                    interval.low,
                    interval.high,
                )
    assert results.sentence == comparison.verdict.sentence
