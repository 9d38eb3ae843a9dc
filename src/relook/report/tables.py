"""A table for people, with its formats: terminal, Markdown and HTML; LaTeX is in `latex`.

A table is filled from results: a line selects some of them, and so does a column; a cell has the
one that both select.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, product
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.results import Result, Results
from relook.foundation.wording import interval, is_zero, signed
from relook.numerics.intervals import Interval
from relook.report.metrics import metric_of

if TYPE_CHECKING:
    from markupsafe import Markup

SHORT_NAMES = {
    "plain": "CC",
    "flip": "Flip",
    "5c": "5C",
    "10c": "10C",
    "d4": "D4",
    "cf": "CF",
    "mtrain": "MTrain",
    "mgrid": "MGrid",
    "random": "Random",
    POLICY_METHOD: "GPS",
}


@dataclass(frozen=True)
class Cell:
    """A cell: a text with its deviation and interval, if any."""

    text: str = ""
    spread: str = ""
    interval: str = ""
    bold: bool = False

    def plain(self, *, intervals: bool = True) -> str:
        """Return the cell as one text."""
        spread = f"±{self.spread}" if self.spread else ""
        ends = f" {self.interval}" if self.interval and intervals else ""
        return self.text + spread + ends


@dataclass(frozen=True)
class Column:
    """A column: its head, and the result or key of a line that it shows.

    `levels` are its heads in LaTeX, from the top; equal neighbours share one. `optional` columns
    are left out if there is no room, the highest number first, of equals the last; with `once`, a
    text is left blank if it is the same as in the line above. `about` explains the head in the
    table's title, if the column is shown.
    """

    head: str
    where: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""
    number: bool = True
    levels: tuple[str, ...] = ()
    optional: int = 0
    once: bool = False
    digits: int | None = None
    about: str = ""

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads in LaTeX, from the top."""
        return self.levels or (self.head,)


@dataclass(frozen=True)
class Line:
    """A line: the texts of its first columns, and the keys of its results."""

    texts: tuple[str, ...]
    where: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """A table with sections of lines; `caption` and `label` are LaTeX's, `wide` spans the page."""

    title: str
    columns: tuple[Column, ...]
    sections: tuple[tuple[tuple[Cell, ...], ...], ...]
    caption: str = ""
    label: str = ""
    note: str = ""
    wide: bool = False

    @property
    def lines(self) -> list[tuple[Cell, ...]]:
        """The lines of all sections."""
        return [line for section in self.sections for line in section]


Grid = Sequence[Sequence[Result | None]]
Best = Callable[[Grid, int, int], bool]
"""Whether the result in a line and column is set in bold."""


def table_of(
    results: Results,
    columns: Sequence[Column],
    sections: Sequence[Sequence[Line]],
    best: Best | None = None,
    missing: str = "",
    **about: Any,
) -> Table:
    """Fill a table: texts of the lines first, then a result or a key for each other column."""
    lines = [line for section in sections for line in section]
    shown = list(columns[len(lines[0].texts) if lines else 1 :])
    own = [results.where(**line.where) for line in lines]
    grid = [
        [mine.get(**{**line.where, **one.where}) if one.where else None for one in shown]
        for line, mine in zip(lines, own, strict=True)
    ]

    def cell(y: int, x: int) -> Cell:
        if shown[x].key:
            return Cell(_key_text(own[y].values(shown[x].key)))
        bold = best is not None and best(grid, y, x)
        return cell_of(grid[y][x], digits=shown[x].digits, bold=bold, missing=missing)

    cells = (
        (*map(Cell, line.texts), *(cell(y, x) for x in range(len(shown))))
        for y, line in enumerate(lines)
    )
    made = tuple(tuple(next(cells) for _ in section) for section in sections if section)
    return Table(columns=tuple(columns), sections=made, **about)


def cell_of(
    one: Result | None, *, digits: int | None = None, bold: bool = False, missing: str = ""
) -> Cell:
    """Return a result as its metric is written: a mean, or a difference with its interval."""
    if one is None:
        return Cell(missing)
    metric = metric_of(one.metric)
    if one.low is None or one.high is None:
        spread = metric.number(one.deviation, digits) if one.deviation else ""
        return Cell(metric.number(one.value, digits), spread, bold=bold)
    if is_zero(Interval(one.value, one.low, one.high, 0.95)):
        return Cell("same")
    ends = f"[{metric.signed(one.low, digits)}, {metric.signed(one.high, digits)}]"
    return Cell(metric.signed(one.value, digits), interval=ends, bold=bold)


def change_cell(found: Interval, digits: int, scale: float = 1.0) -> Cell:
    """Return a difference with its interval."""
    return Cell(signed(scale * found.estimate, digits), interval=interval(found, digits, scale))


def best_of_line(grid: Grid, y: int, x: int) -> bool:
    """Whether nothing of the same metric in the line is better, at the digits shown."""
    one = grid[y][x]
    return one is not None and _leads(one, grid[y])


def best_of_column(grid: Grid, y: int, x: int) -> bool:
    """Whether a result is the first of the best in its column."""
    one = grid[y][x]
    if one is None or one["versus"] is not None:
        return False
    column = _alike(grid, x, one)
    return one == next(o for o in column if _score(o) == max(map(_score, column)))


def best_of_budget(grid: Grid, y: int, x: int) -> bool:
    """Whether nothing in the column that costs at most the same budget is better."""
    one = grid[y][x]
    if one is None or one["versus"] is not None or one["budget"] is None:
        return False
    affordable = [o for o in _alike(grid, x, one) if o["budget"] <= one["budget"]]
    return _score(one) >= max(_score(other) for other in affordable)


def side_by_side(tables: Sequence[Table], **about: Any) -> Table:
    """Return tables with the same lines as one, each with its title above its columns."""
    first = tables[0]
    texts = sum(not column.number for column in first.columns)
    columns = [replace(c, levels=("", *c.heads)) for c in first.columns[:texts]]
    for table in tables:
        columns += [replace(c, levels=(table.title, *c.heads)) for c in table.columns[texts:]]
    sections = tuple(
        tuple(
            (*lines[0][:texts], *(cell for line in lines for cell in line[texts:]))
            for lines in zip(*alike, strict=True)
        )
        for alike in zip(*(table.sections for table in tables), strict=True)
    )
    merged = replace(first, columns=tuple(columns), sections=sections, wide=True)
    return replace(merged, **about)


def new_table(title: str, *, tight: bool = False) -> RichTable:
    """Return an empty table for the terminal, in relook's style."""
    return RichTable(
        title=title,
        padding=(0, 0 if tight else 1),
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        show_edge=False,
    )


def terminal(table: Table, console: Console | None = None) -> RichTable:
    """Return the table for a terminal, without columns and intervals that do not fit."""
    if console is None:
        return _rich(table)
    unlimited = console.options.update(max_width=10_000)
    for (shown, intervals), tight in product(_smaller(table), (False, True)):
        made = _rich(shown, intervals=intervals, tight=tight)
        if console.measure(made, options=unlimited).maximum <= console.width:
            break
    return made


def markdown(table: Table) -> str:
    """Return the table as Markdown, its title above and its note below."""
    rules = ["---:" if column.number else "---" for column in table.columns]
    lines = [_pipes([column.head for column in table.columns]), _pipes(rules)]
    for line in table.lines:
        lines.append(_pipes([f"**{c.plain()}**" if c.bold else c.plain() for c in line]))
    title, note = [table.title, ""] if table.title else [], ["", table.note] if table.note else []
    return "\n".join([*title, *lines, *note]) + "\n"


def html(table: Table) -> Markup:
    """Return the table as HTML, its title above, its note below."""
    from relook.report.html import render

    return render("table.html", table=table)


def _score(one: Result) -> float:
    return -one.value if metric_of(one.metric).lowest else one.value


def _alike(grid: Grid, x: int, one: Result) -> list[Result]:
    """Return a column's results with the same metric, data and model."""
    keys = ("metric", "data", "model")
    return [o for line in grid if (o := line[x]) and all(o[key] == one[key] for key in keys)]


def _leads(one: Result, others: Sequence[Result | None]) -> bool:
    alike = [o for o in others if o is not None and o.metric == one.metric]
    metric, best = metric_of(one.metric), max(alike, key=_score)
    digits = min(metric.digits, metric.paper_digits)
    return metric.number(one.value, digits) == metric.number(best.value, digits)


def _key_text(values: Sequence[Any]) -> str:
    return f"{values[0]:g}" if values and not isinstance(values[0], str) else "".join(values[:1])


def _smaller(table: Table) -> Iterator[tuple[Table, bool]]:
    """Yield the table, then with fewer and fewer optional columns, then without intervals."""
    yield table, True
    optional = [column for column in reversed(table.columns) if column.optional]
    optional.sort(key=lambda column: -column.optional)
    smallest = table
    for count in range(1, len(optional) + 1):
        smallest = without_columns(table, optional[:count])
        heads = ", ".join(c.head for c in table.columns if c not in smallest.columns)
        note = f"columns hidden (narrow terminal): {heads}"
        smallest = replace(smallest, note="\n".join(filter(None, (table.note, note))))
        yield smallest, True
    yield smallest, False


def without_columns(table: Table, left_out: Sequence[Column]) -> Table:
    """Return the table without some of its columns."""
    kept = [not any(c is one for one in left_out) for c in table.columns]
    sections = (tuple(tuple(compress(line, kept)) for line in part) for part in table.sections)
    return replace(table, columns=tuple(compress(table.columns, kept)), sections=tuple(sections))


def with_repeats_left_out(table: Table) -> list[list[tuple[Cell, ...]]]:
    """Return the lines, with texts of `once` columns left blank if the line above has them."""
    before: tuple[Cell, ...] = ()
    sections = []
    for section in table.sections:
        shown = []
        for line in section:
            shown.append(  # a text counts as new if one before it does
                tuple(
                    Cell() if column.once and line[:end] == before[:end] else line[end - 1]
                    for end, column in enumerate(table.columns, 1)
                )
            )
            before = line
        sections.append(shown)
    return sections


def _rich(table: Table, *, intervals: bool = True, tight: bool = False) -> RichTable:
    abouts = [one.about for one in table.columns if one.about]
    made = new_table("; ".join([table.title, *abouts]), tight=tight)
    made.caption, made.caption_justify, made.caption_style = table.note or None, "left", "dim"
    for column in table.columns:
        made.add_column(column.head, justify="right" if column.number else "left", no_wrap=True)
    for section in with_repeats_left_out(table):
        for line in section:
            texts = [cell.plain(intervals=intervals) for cell in line]
            bold = ["bold" if cell.bold else "" for cell in line]
            made.add_row(*(Text(*one) for one in zip(texts, bold, strict=True)))
        made.add_section()
    return made


def _pipes(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
