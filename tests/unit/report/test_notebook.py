import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.report.example_run import example_comparison, example_policy
from tests.unit.report.html_reader import read_html

from relook.policy import Policy
from relook.policy_search.search import PolicySearch
from relook.selection import SearchResult

ATTACK = "<script>alert(1)</script>"


def test_a_policy_shows_its_views() -> None:
    policy = example_policy()
    found = read_html(policy._repr_html_())
    pictures = found.all("img")
    assert len(pictures) == len(policy.counts())
    assert [img.attributes["alt"] for img in pictures] == [str(s) for s, _ in policy.counts()]
    assert "sharpness 8 × at 4.3" in found.words()
    assert "0 entries" in read_html(Policy(())._repr_html_()).words()


def test_a_comparison_shows_verdict_table_and_curves() -> None:
    comparison = example_comparison()
    found = read_html(comparison._repr_html_())
    assert comparison.verdict.sentence in found.words()
    assert len(found.all("tbody")) == 4
    assert len([svg for svg in found.all("svg") if svg.attributes.get("role") == "img"]) == 2


def test_a_search_shows_both() -> None:
    comparison, none = example_comparison(), np.empty(0, dtype=np.int64)
    trace = SearchResult((0, 1), (-0.5, -0.25), (1.0, 1.0))
    result = PolicySearch(comparison.policy, (), trace, comparison, none, none, {})
    found = read_html(result._repr_html_())
    assert "from -0.5000 to -0.2500" in found.words()
    assert found.all("img")
    assert found.all("tbody")


def test_text_is_plain_in_a_notebook_too(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = example_comparison()
    usual = repr(comparison)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as Jupyter's kernel has it
    assert comparison.verdict.sentence in " ".join(usual.split())
    assert repr(comparison) == usual


def test_text_fits_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    comparison = example_comparison()
    piped = repr(comparison)
    assert max(map(len, piped.splitlines())) > 80
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    shown = repr(comparison)
    assert max(map(len, shown.splitlines())) <= 80
    assert "columns hidden (narrow terminal): " in shown
    assert comparison.verdict.sentence in " ".join(shown.split())


def test_text_has_every_baseline_and_of_very_many_rows_the_most_views_of_each() -> None:
    comparison = example_comparison()
    shown = repr(comparison)
    assert "more row" not in shown
    labels = {row.label for row in comparison.rows}
    assert all(label in shown for label in labels)
    many = repr(replace(comparison, budgets=tuple({row.budget for row in comparison.rows})))
    assert all(label in many for label in labels)
    assert "more rows in to_pandas() and report()." in many


def test_a_notebook_finds_the_picture_of_a_figure() -> None:
    assert example_comparison().plot()._repr_png_().startswith(b"\x89PNG")


def test_names_are_escaped() -> None:
    comparison = example_comparison()
    rows = tuple(replace(row, label=ATTACK) for row in comparison.rows)
    verdict = replace(comparison.verdict, sentence=ATTACK)
    hostile = read_html(replace(comparison, rows=rows, verdict=verdict)._repr_html_())
    assert ATTACK in hostile.words()
    policy = replace(comparison.policy, recipe=ATTACK)
    hostile_policy = read_html(policy._repr_html_())
    assert not [*hostile.all("script"), *hostile_policy.all("script")]
