"""A comparison as tables: for the terminal, Markdown, and LaTeX as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from rich.console import Console

from relook.evaluation.baselines import BASELINES, POLICY_METHOD, has_own_budget, is_asked
from relook.evaluation.comparison import USUAL, Comparison, Row
from relook.evaluation.frontier import frontier
from relook.evaluation.results import Results
from relook.evaluation.where import Slice, Where
from relook.foundation.screen import Screen, print_facts
from relook.foundation.wording import views_text
from relook.io.files import for_terminal
from relook.report.latex import latex
from relook.report.metrics import metric_of
from relook.report.style import shorten
from relook.report.tables import (
    SHORT_NAMES,
    Cell,
    Column,
    Line,
    Table,
    best_of_budget,
    best_of_line,
    cell_of,
    change_cell,
    side_by_side,
    table_of,
    terminal,
)

if TYPE_CHECKING:
    from relook.evaluation.requirement import Checked

PAPER_ORDER = ("plain", "5c", "10c", "cf", "mtrain", "mgrid", POLICY_METHOD)
"""The methods of the paper's tables, from left to right."""

_BAR = 10
_MOST_AN_END = 10
_VERSUS = {"rival": "best baseline", "plain": "plain image"}


def shown_rows(comparison: Comparison) -> list[Row]:
    """Return the rows of the budgets asked for, and of the methods with a budget of their own.

    A policy with fewer views than several budgets has one row, for the largest.
    """
    budgets, rows = comparison.budgets, comparison.rows
    asked = (row for row in rows if is_asked(row.method, row.budget, budgets))
    return list({(row.method, row.views): row for row in asked}.values())


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print the table and the verdict."""
    console = console or Screen(highlight=False)
    console.print(terminal(comparison_table(comparison), console))
    print_facts(console, comparison.verdict.sentence)


def comparison_table(comparison: Comparison) -> Table:
    """Return a line per method and budget; the best that a budget buys is bold.

    Intervals are those of the difference in cLL, at 95 %: to the best baseline that costs at
    most the same, then to the plain image. If learned averages change anything, cLL and
    differences are those with learned averages, and the usual average's cLL has its own column.
    """
    title = f"{comparison.images_text}; cLL: calibrated log-likelihood, higher is better"
    metrics = ("slowdown", "cll", "accuracy")
    rows = shown_rows(comparison)
    named = dict.fromkeys(row.method for row in rows if row.label.endswith(")"))
    of_policy = {POLICY_METHOD: "found by greedy policy search"}
    notes = [f"{SHORT_NAMES.get(one, one)}: {of_policy.get(one, about(one))}" for one in named]
    if len({row.over_rival is None for row in rows}) > 1:
        notes.append("–: it is the best baseline itself")
    words: dict[str, Any] = {"title": title, "note": "; ".join(notes)}
    comparison = replace(comparison, rows=tuple(rows))
    with_learned = comparison.learned_averages
    if with_learned is None:
        return method_table(comparison.results(), metrics, _VERSUS, **words)
    usual, explained = f"cll{USUAL}", "usual: with the usual average of views, not a learned one"
    more = (
        Column(metric_of(usual).head, {"metric": usual}, optional=3, about=explained),
        Column(f"cLL − {_VERSUS['plain']}", {"metric": "cll", "versus": "plain"}, optional=1),
    )
    rival = {"rival": _VERSUS["rival"]}
    return method_table(with_learned.results(), metrics, rival, more=more, **words)


def method_table(
    results: Results,
    metrics: Sequence[str],
    versus: Mapping[str, str],
    *,
    compared: str = "cll",
    head: str = "method",
    keys: Mapping[str, str] | None = None,
    more: Sequence[Column] = (),
    **about: Any,
) -> Table:
    """Return a line per method and budget: keys, metrics, and differences, which are optional.

    `versus` has the names of the kinds of differences in the metric `compared`, `keys` the heads
    of the keys that are shown (default: the views); `more` columns come last.
    """
    measure = metric_of(compared).head.removesuffix(" %")
    columns = [
        Column(head, number=False, once=True),
        *(Column(name, key=key) for key, name in (keys or {"views": "views"}).items()),
        *(
            Column(metric_of(one).head, {"metric": one}, optional=2 if one == "slowdown" else 0)
            for one in metrics
        ),
        *(
            Column(
                f"{measure} − {other}",
                {"metric": compared, "versus": kind},
                optional=4 if kind == "rival" else 1,
            )
            for kind, other in versus.items()
            if results.where(versus=kind)
        ),
        *more,
    ]
    return table_of(results, columns, method_sections(results), _best_but_cost, "–", **about)


def method_sections(results: Results) -> list[list[Line]]:
    """Return lines by method and budget; a section per method, one for all of fixed cost."""
    sections: list[list[Line]] = []
    last = None
    for (method, label, budget), _ in results.groups("method", "label", "budget"):
        fixed = has_own_budget(method) and has_own_budget(last or "")
        if method != last and not fixed:
            sections.append([])
        sections[-1].append(Line((str(label),), {"method": method, "budget": budget}))
        last = method
    return sections


def _best_but_cost(grid: Any, y: int, x: int) -> bool:
    one = grid[y][x]
    return one is not None and one.metric in _JUDGED and best_of_budget(grid, y, x)


_JUDGED = ("cll", "accuracy", "log_likelihood", "muce")


def frontier_table(comparison: Comparison) -> Table:
    """Return the frontier: the rows with a higher cLL than all cheaper ones."""
    comparison = comparison.learned_averages or comparison
    rows = frontier(shown_rows(comparison))
    results = comparison.results()
    lowest, highest = rows[0].metrics["cll"].mean, rows[-1].metrics["cll"].mean
    lines = []
    for row in rows:
        share = (row.metrics["cll"].mean - lowest) / ((highest - lowest) or 1.0)
        own = results.where(method=row.method, budget=row.budget)
        texts = (f"{row.slowdown:.1f}", str(row.views), row.label)
        metrics = [cell_of(own.one(metric=name)) for name in ("cll", "accuracy")]
        lines.append((*map(Cell, texts), *metrics, Cell("▇" * (1 + round(_BAR * share)))))
    heads = ("time ×", "views", "method", "cLL", "acc. %", "")
    columns = tuple(Column(head, number=head not in ("method", "")) for head in heads)
    return Table("what more time buys", columns, (tuple(lines),))


def where_table(where: Where) -> Table:
    """Return the gains over the plain image by slice, in each kind the largest loss first."""
    none = Cell("–"), Cell("–")
    sections = []
    for kind in where.kinds:
        shown, left = ranked(where.of(kind))
        lines = [_slice_line(kind, one) for one in shown]
        if left:
            lines.insert(len(shown) // 2, (*map(Cell, (kind, f"… {left} more", "")), *none))
        if few := where.too_few(kind):
            texts = kind, f"{len(few)} too small to tell", f"{sum(one.images for one in few):,}"
            lines.append((*map(Cell, texts), *none))
        sections.append(tuple(lines))
    columns = (
        Column("by", number=False, once=True),
        Column("", number=False),
        *(Column("images"), Column("cLL gain"), Column("acc. gain, points", optional=1)),
    )
    title = (
        f"where {where.label} with {views_text(where.views)} gains over the plain image; all "
        "intervals hold together at 95 %"
    )
    return Table(title, columns, tuple(sections))


def ranked(slices: Sequence[Slice]) -> tuple[list[Slice], int]:
    """Return the slices, of many only those at both ends, and the number of those left out."""
    if len(slices) <= 2 * _MOST_AN_END:
        return list(slices), 0
    return [*slices[:_MOST_AN_END], *slices[-_MOST_AN_END:]], len(slices) - 2 * _MOST_AN_END


def _slice_line(kind: str, one: Slice) -> tuple[Cell, ...]:
    gains = [
        change_cell(found, digits, scale)
        for found, digits, scale in ((one.cll, 4, 1), (one.accuracy, 1, 100))
        if found is not None
    ]
    return (Cell(shorten(kind)), Cell(shorten(one.name)), Cell(f"{one.images:,}"), *gains)


def to_latex(comparison: Comparison, dataset: str = "", model: str = "") -> str:
    """Return cLL and accuracy by method and budget, in the form of the paper's appendix."""
    results = comparison.results().where(asked=True).labelled(data=dataset, model=model)
    order = tuple(dict.fromkeys(row.method for row in comparison.rows))
    tables = paper_tables(results, ("cll", "accuracy"), order=order)
    named = "; ".join(f"{SHORT_NAMES.get(m, m)}: {about(m)}" for m in order)
    caption = (
        "Calibrated log-likelihood and accuracy of test-time augmentation methods on "
        f"{comparison.images_text}. {named}."
    )
    return latex(side_by_side(tables, caption=caption, label="table:acc-cll"))


def paper_tables(
    results: Results,
    metrics: Sequence[str],
    *,
    order: Sequence[str] = PAPER_ORDER,
    names: Mapping[str, str] = SHORT_NAMES,
) -> list[Table]:
    """Return the paper's tables, one per metric: lines are data and models, columns methods.

    The best of each line is bold. Columns are in the `order` of methods, then of budgets.
    """
    pairs = [pair for pair, _ in results.groups("method", "budget")]
    known = {method: place for place, method in enumerate(order)}
    pairs.sort(key=lambda pair: (known.get(pair[0], len(known)), str(pair[0]), pair[1]))
    sections = [
        [Line((str(data or ""), str(one or "")), {"data": data, "model": one}) for (one,), _ in own]
        for (data,), part in results.groups("data")
        for own in [list(part.groups("model"))]
    ]
    texts = [
        Column("data", number=False, levels=("Dataset", ""), once=True),
        Column("model", number=False, levels=("Model", "")),
    ]
    made = []
    for metric in metrics:
        columns = texts + [_paper_column(method, budget, metric, names) for method, budget in pairs]
        title = metric_of(metric).title
        made.append(table_of(results, columns, sections, best_of_line, "–", title=title))
    return made


def _paper_column(method: str, budget: int, metric: str, names: Mapping[str, str]) -> Column:
    name, own = names.get(method, method), has_own_budget(method)
    return Column(
        name if own else f"{name} {budget}",
        {"metric": metric, "method": method, "budget": budget},
        levels=(name, "" if own else str(budget)),
        digits=metric_of(metric).paper_digits,
    )


def about(method: str) -> str:
    """Return a short description of a method."""
    if method == POLICY_METHOD:
        return "the learned policy"
    return BASELINES[method].about if method in BASELINES else method


def junit_xml(checked: Sequence[Checked], verdict: str) -> str:
    """Return JUnit XML with a test case per requirement, and the verdict."""
    failures = sum(not one.met for one in checked)
    counts = {"tests": str(len(checked)), "failures": str(failures), "errors": "0"}
    suite = ElementTree.Element("testsuite", {"name": "relook compare", **counts})
    for one in checked:
        named = {"classname": "relook.compare", "name": for_terminal(one.requirement)}
        case = ElementTree.SubElement(suite, "testcase", named)
        part = ElementTree.SubElement(case, "system-out" if one.met else "failure")
        part.text = for_terminal(str(one))
        if not one.met:
            part.set("message", part.text)
    ElementTree.SubElement(suite, "system-out").text = for_terminal(verdict)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
