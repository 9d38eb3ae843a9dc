"""Tables about the deployed model: latency, prediction sets, a network distilled from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relook.evaluation.latency import Latency, milliseconds
from relook.evaluation.set_sizes import SetFigures, SetReport
from relook.foundation.wording import plain, signed
from relook.numerics.intervals import Interval
from relook.report.tables import Cell, Column, Table, change_cell

if TYPE_CHECKING:
    from relook.deploy.distil.verdict import Line, Verdict

_WHOLE_SETS_HEADS = (
    "plain image's set",
    *("images", "covered %", "plain covered %"),
    *("size", "plain size", "size, views − plain"),
)
_SETS_HEADS = ("plain set", "images", "cov. %", "plain %", "size", "plain size", "change")
_SETS_NOTE = (
    "plain set: classes in the plain image's set; cov. %: sets that contain the true class; size: "
    "classes in a set, on average; plain % and plain size: the same of the plain image's sets; "
    "change: size − plain size"
)
_PLAIN_SETS_HEADS = ("classes in the set", "images", "covered %", "size")
_PLAIN_SETS_NOTE = "covered: sets that contain the true class; size: classes in a set, on average"


def latency_table(latency: Latency) -> Table:
    """Return the time of each measured number of views, and its gain."""
    lines = []
    slowest = max(one.milliseconds or 0 for one in latency.rungs)
    digits = 0 if slowest >= 100 else 1 if slowest >= 10 else 2 if slowest >= 1 else 3
    for place, one in enumerate(latency.rungs):
        more, gain = latency.further(place), one.over_plain
        cells = (
            Cell("plain image" if one.method == "plain" else str(one.views)),
            Cell(f"{one.milliseconds or 0:.{digits}f}", bold=place == latency.chosen),
            Cell("" if more is None else signed(more, digits)),
            Cell("–" if one.cll is None else plain(one.cll, 4), bold=place == latency.chosen),
            Cell("–") if gain is None else change_cell(gain, 4),
        )
        lines.append(cells)
    columns = tuple(map(Column, ("views", "ms", "each more", "cLL", "cLL − plain image")))
    title = (
        f"what milliseconds buy: {latency.rungs[-1].label or 'plain image'}; bold: the best within "
        f"{milliseconds(latency.budget)}"
    )
    return Table(title, columns, (tuple(lines),), note=latency.where)


def sets_table(report: SetReport, *, whole: bool = False) -> Table:
    """Return coverage and size of sets and of the plain image's: all images, then easy and hard.

    The plain image's own sets are not compared with themselves. The `whole` table, too wide for a
    terminal, has long heads and intervals of the sizes too; the short one explains its heads below.
    """
    rows = [("all", report.images, report.figures)]
    rows += [(part.plain_size, part.images, part.figures) for part in report.parts]
    lines = [
        (
            Cell(name),
            Cell(f"{images:,}"),
            *(
                (Cell("too few images"), *[Cell("")] * (1 if report.of_plain else 4))
                if one is None
                else _set_figures(one, whole, report.of_plain)
            ),
        )
        for name, images, one in rows
    ]
    heads: tuple[str, ...] = _WHOLE_SETS_HEADS if whole else _SETS_HEADS
    note = _SETS_NOTE
    if report.of_plain:
        heads, note = _PLAIN_SETS_HEADS, _PLAIN_SETS_NOTE
    # If there is no room, the plain image's size goes first: it follows from the change.
    optional = {"plain size": 2, "plain %": 1}
    columns = tuple(
        Column(head, number=place > 0, optional=0 if whole else optional.get(head, 0))
        for place, head in enumerate(heads)
    )
    title = f"{report.images:,} evaluation images"
    return Table(title, columns, (tuple(lines),), note="" if whole else note)


def sets_sentence(report: SetReport, coverage: float) -> str:
    """Return a sentence on how often sets contain the true class, and how large they are."""
    figures = report.figures
    if figures is None:
        return "Too few images to tell coverage and size"
    change = 100 * figures.size_change.estimate / max(figures.plain_size.estimate, 1e-9)
    compared = "" if report.of_plain else f", {signed(change, 1)} % compared with the plain image's"
    empty = f"; {100 * figures.empty:.1f} % are empty" if figures.empty else ""
    return (
        f"{100 * figures.coverage.estimate:.1f} % of the sets contain the true class (asked for: "
        f"{100 * coverage:g} %), with {figures.size.estimate:.2f} classes on average"
        f"{compared}{empty}"
    )


def _set_figures(one: SetFigures, whole: bool, of_plain: bool) -> tuple[Cell, ...]:
    coverage = Cell(f"{100 * one.coverage.estimate:.1f}", interval=_ends(one.coverage, 1, 100))
    size = Cell(f"{one.size.estimate:.2f}", interval=_ends(one.size, 2) if whole else "")
    if of_plain:
        return coverage, size
    return (
        coverage,
        Cell(f"{100 * one.plain_coverage.estimate:.1f}"),
        size,
        Cell(f"{one.plain_size.estimate:.2f}"),
        change_cell(one.size_change, 2),
    )


def _ends(one: Interval, digits: int, scale: float = 1.0) -> str:
    return f"[{plain(one.low * scale, digits)}, {plain(one.high * scale, digits)}]"


def distil_table(verdict: Verdict) -> Table:
    """Return the original and the distilled network, plain and with the policy, in one table."""
    heads = ("views", "acc. %", "cLL", "ECE %", "gain in cLL", "in accuracy")
    columns = (Column("network, input", number=False), *map(Column, heads))
    rows = tuple(_distil_cells(line) for line in verdict.lines)
    return Table(f"{verdict.images:,} labelled images", columns, (rows,))


def _distil_cells(line: Line) -> tuple[Cell, ...]:
    gains = [Cell(""), Cell("")]
    if line.over_plain is not None:
        over = line.over_plain
        gains = [change_cell(over["cll"], 4), change_cell(over["accuracy"], 1, 100)]
    return (
        Cell(line.name),
        Cell(str(line.views)),
        Cell(f"{100 * line.accuracy:.2f}"),
        Cell(plain(line.cll, 4)),
        Cell(f"{100 * line.ece:.1f}"),
        *gains,
    )
