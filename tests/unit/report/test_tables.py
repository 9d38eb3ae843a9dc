import io
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.data.marked_images import TURNED, Oracle, noisy

from relook.evaluation.compare import compare
from relook.evaluation.comparison import (
    METRICS_OF_A_ROW,
    METRICS_OF_AVERAGES,
    Comparison,
    Measured,
    Row,
)
from relook.evaluation.where import Slice, Where
from relook.foundation.wording import interval, signed
from relook.numerics.intervals import Interval
from relook.report.comparison_tables import (
    comparison_table,
    frontier_table,
    print_comparison,
    shown_rows,
    to_latex,
    where_table,
)
from relook.report.notebook import html
from relook.report.tables import Table, markdown, terminal


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    dataset, logits = noisy(80)
    few: Any = {"budgets": (1, 2, 4), "methods": ("flip",), "measure_cost": False}
    found = compare(Oracle(logits).predictor, dataset, TURNED, recipe="small", **few)
    clls = iter([-0.9, -0.85, -0.9, -0.8, -0.7, -0.6])
    return replace(found, rows=tuple(_with_cll(row, next(clls)) for row in found.rows))


def _with_cll(row: Row, cll: float) -> Row:
    metrics = {name: one for name, one in row.metrics.items() if name in METRICS_OF_A_ROW}
    return replace(row, metrics={**metrics, "cll": Measured(cll, 0.0)})


def text_of(table: Table, width: int = 140) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False, color_system=None)
    console.print(terminal(table))
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def bold_cells(table: Table) -> Iterator[str]:
    for column in zip(*table.lines, strict=True):
        yield from (cell.plain() for cell in column if cell.bold)


def test_the_asked_budgets_are_shown_and_the_fixed_methods(comparison: Comparison) -> None:
    shown = [(row.method, row.budget) for row in shown_rows(comparison)]
    assert shown == [("plain", 1), ("flip", 2), ("gps", 1), ("gps", 2), ("gps", 4)]
    assert comparison.row("gps", 3) is not None


def test_the_best_that_a_budget_buys_is_bold(comparison: Comparison) -> None:
    bold = [cell for cell in bold_cells(comparison_table(comparison)) if cell.startswith("−")]
    # Two share the first place at one view; the mirror image is beaten at two views.
    assert bold == ["−0.9000", "−0.9000", "−0.8000", "−0.6000"]


def test_identical_predictions_are_the_same(comparison: Comparison) -> None:
    rounding = Interval(-1e-9, -2e-9, 1e-9, 0.95)
    first = comparison.row("gps", 1)
    assert first is not None
    same = replace(first, over_plain={"cll": rounding, "accuracy": Interval(0, -0.1, 0.1, 0.95)})
    rows = tuple(same if row is first else row for row in comparison.rows)
    table = comparison_table(replace(comparison, rows=rows))
    place = [column.head for column in table.columns].index("cLL − plain image")
    cells = {(line[0].text, line[1].text): line[place].plain() for line in table.lines}
    assert cells["learned policy (GPS)", "1"] == "same"
    page = html(replace(comparison, rows=rows))
    assert page.count(">same<") == 2  # in cLL and in accuracy


def test_the_terminal_table_says_all_of_it(comparison: Comparison) -> None:
    text = text_of(comparison_table(comparison))
    assert "80 held-out images; cLL: calibrated log-likelihood" in text
    assert "learned policy (GPS)" in text
    assert "mirror image" in text
    assert "±" not in text
    gain = (comparison.rows[-1].over_plain or {})["cll"]
    assert f"{gain.estimate:+.4f} [" in text.replace("−", "-")


@pytest.mark.parametrize(("width", "columns"), [(140, 7), (100, 6), (60, 4), (10, 4)])
def test_intervals_are_shown_as_far_as_there_is_room(
    comparison: Comparison, width: int, columns: int
) -> None:
    table = terminal(comparison_table(comparison), Console(width=width, file=io.StringIO()))
    assert len(table.columns) == columns


HEADS = ("cLL", "acc. %")
RIVAL, PLAIN, USUAL = "cLL − best baseline", "cLL − plain image", "cLL usual"


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (80, ["time ×", *HEADS, PLAIN]),
        (100, ["time ×", *HEADS, USUAL, PLAIN]),
        (140, ["time ×", *HEADS, RIVAL, USUAL, PLAIN]),
    ],
)
def test_the_usual_average_stands_beside_the_learned_one(
    comparison: Comparison, width: int, heads: list[str]
) -> None:
    both = {one: Measured(-0.4 + 0.1 * i, 0.0) for i, one in enumerate(METRICS_OF_AVERAGES)}
    rows = tuple(replace(row, metrics={**row.metrics, **both}) for row in comparison.rows)
    table = comparison_table(replace(comparison, rows=rows))
    shown = terminal(table, Console(width=width, file=io.StringIO()))
    assert [column.header for column in shown.columns][2:] == heads
    missing = [one for one in (RIVAL, USUAL) if one not in heads]
    told = f"columns hidden (narrow terminal): {', '.join(missing)}"
    assert (told in str(shown.caption)) == bool(missing)
    # A column that is left out is not explained.
    assert ("usual: with the usual average" in str(shown.title)) == ("cLL usual" in heads)
    assert "−0.2000" in text_of(table)  # learned
    assert "−0.4000" in text_of(table)


def test_gains_by_slice_keep_the_intervals_of_cll_where_there_is_little_room() -> None:
    gain = Interval(0.0123, -0.0234, 0.0345, 0.95)
    slices = tuple(Slice("class", f"a long name {i}", 100, gain, gain) for i in range(3))
    where = Where("gps", "policy", 5, 5, slices, (), ())
    shown = terminal(where_table(where), Console(width=70, file=io.StringIO()))
    assert [column.header for column in shown.columns] == ["by", "", "images", "cLL gain"]
    assert "[−0.0234, +0.0345]" in str(next(iter(shown.columns[3].cells)))
    assert "columns hidden (narrow terminal): acc. gain, points" in str(shown.caption)


def test_what_has_nothing_to_be_compared_with_says_why(comparison: Comparison) -> None:
    table = comparison_table(comparison)
    place = [column.head for column in table.columns].index("cLL − best baseline")
    cells = {line[0].text: line[place].text for line in table.lines}
    best = [label for label, text in cells.items() if text == "–"]
    assert best
    assert "" not in cells.values()
    assert table.note.endswith("; –: it is the best baseline itself")


def test_the_terminal_explains_the_methods_that_it_shows(comparison: Comparison) -> None:
    caption = str(terminal(comparison_table(comparison)).caption)
    assert caption.startswith("CC: the image as it is; ")
    assert "GPS: found by greedy policy search" in caption
    assert "MGrid" not in caption
    # A method from elsewhere goes by its name.
    rows = [replace(row, method="mine", label="mine (M)") for row in comparison.rows[:1]]
    table = comparison_table(replace(comparison, rows=(*rows, *comparison.rows)))
    assert table.note.startswith("mine: mine; ")


def test_a_policy_of_few_views_stands_there_once(comparison: Comparison) -> None:
    budgets = (*comparison.budgets, 50, 100)
    own = max((row for row in comparison.rows if row.method == "gps"), key=lambda row: row.budget)
    more = [replace(own, budget=budget) for budget in (50, 100)]
    longer = replace(comparison, budgets=budgets, rows=(*comparison.rows, *more))
    shown = [row for row in shown_rows(longer) if row.method == "gps"]
    assert [row.views for row in shown] == sorted({row.views for row in shown})
    assert shown[-1].budget == 100
    lines = [line for line in comparison_table(longer).lines if line[0].text == own.label]
    assert len(lines) == len(shown)


def test_deviations_are_shown_when_there_are_runs(comparison: Comparison) -> None:
    metrics = {**comparison.rows[0].metrics, "accuracy": Measured(0.91234, 0.00456)}
    several = replace(
        comparison, rows=(replace(comparison.rows[0], metrics=metrics), *comparison.rows[1:])
    )
    assert "91.23±0.46" in text_of(comparison_table(several))
    assert "91.23±0.46" in markdown(comparison_table(several))
    assert r"91.23 {\tiny$\pm$0.46}" in to_latex(several)


def test_labels_are_text_and_not_markup(comparison: Comparison) -> None:
    rows = (replace(comparison.rows[0], label="[red]x[/] | y"), *comparison.rows[1:])
    odd = replace(comparison, rows=rows)
    assert "[red]x[/] | y" in text_of(comparison_table(odd))
    assert "[red]x[/] | y" in text_of(frontier_table(odd))
    assert r"[red]x[/] \| y" in markdown(comparison_table(odd))


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_has_room_for_one_interval_and_the_verdict_comes_last(
    comparison: Comparison, width: int
) -> None:
    file = io.StringIO()
    print_comparison(comparison, Console(width=width, file=file, color_system=None))
    text = file.getvalue()
    assert "…" not in text
    assert "cLL − best baseline" in text
    assert " ".join(text.split()).endswith(comparison.verdict.sentence)


def test_the_frontier_rises_with_the_cost(comparison: Comparison) -> None:
    table = frontier_table(comparison)
    cells = [[line[i].plain() for line in table.lines] for i in range(len(table.columns))]
    times, clls = ([float(cell.replace("−", "-")) for cell in cells[i]] for i in (0, 3))
    assert times == sorted(times)
    assert clls == sorted(clls) == [-0.9, -0.8, -0.6]
    bars = [len(cell) for cell in cells[5]]
    assert bars == [1, 4, 11]


def test_latex_has_the_papers_form(comparison: Comparison) -> None:
    text = to_latex(comparison, "CIFAR_10", "VGG & co")
    lines = text.splitlines()
    assert lines[0] == r"\begin{table*}"
    columns = re.search(r"\\begin{tabular}{(l+)}", text)
    assert columns is not None
    assert len(columns[1]) == 2 + 2 * 5
    (figures,) = [line for line in lines if line.startswith(r"CIFAR\_10")]
    cells = [cell.strip() for cell in figures.removesuffix(r"\\").split(" & ")]
    assert cells[:2] == [r"CIFAR\_10", r"VGG \& co"]
    assert cells[2:7] == ["$-$0.900", "$-$0.850", "$-$0.900", "$-$0.800", r"\textbf{$-$0.600}"]
    assert r"\multicolumn{3}{c}{GPS}" in text
    assert r"\cmidrule(l){5-7}" in text
    assert r"\cmidrule(l){10-12}" in text
    assert text.count("{") == text.count("}")
    assert text.count(r"\begin") == text.count(r"\end")
    inside = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    for line in inside.strip().splitlines():
        if line.startswith("\\cmidrule") or line == r"\midrule":
            continue
        places = re.split(r"(?<!\\)&", line)
        spans = [int(m[1]) if (m := re.search(r"multicolumn{(\d+)}", c)) else 1 for c in places]
        assert sum(spans) == 12, line


def test_markdown_is_a_table_of_seven_columns(comparison: Comparison) -> None:
    lines = markdown(comparison_table(comparison)).splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 2 + 5
    assert {line.count("|") for line in rows} == {8}
    assert "**−0.6000**" in rows[-1]
    gain = (comparison.rows[-1].over_plain or {})["cll"]
    assert f"| {signed(gain.estimate, 4)} {interval(gain, 4)} |" in rows[-1]
