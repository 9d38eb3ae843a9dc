"""What prediction sets are worth: a table and a sentence, for the terminal and the report."""

from __future__ import annotations

from relook.evaluation.set_sizes import SetFigures, SetReport
from relook.foundation.wording import interval, plain, signed
from relook.numerics.intervals import Interval
from relook.report.tables import Cell, Column, Table

_HEADS = (
    "plain image's set",
    *("images", "covered %", "plain covered %"),
    *("size", "plain size", "size, views − plain"),
)


def sets_table(report: SetReport, *, whole: bool = False) -> Table:
    """Return coverage and size of sets and of the plain image's: all images, then easy and hard.

    The `whole` table has intervals of the sizes too, for which a terminal is too narrow.
    """
    rows = [("all", report.images, report.figures)]
    rows += [(part.plain_size, part.images, part.figures) for part in report.parts]
    lines = [
        (
            Cell(name),
            Cell(f"{images:,}"),
            *((Cell("too few images"), *[Cell("")] * 4) if one is None else _figures(one, whole)),
        )
        for name, images, one in rows
    ]
    columns = tuple(Column(head, number=place > 0) for place, head in enumerate(_HEADS))
    return Table(f"{report.images:,} images that set no threshold", columns, (tuple(lines),))


def sets_sentence(figures: SetFigures, coverage: float) -> str:
    """Say how often sets hold the true class, and how large they are."""
    change = 100 * figures.size_change.estimate / max(figures.plain_size.estimate, 1e-9)
    empty = f"; {100 * figures.empty:.1f} % are empty" if figures.empty else ""
    return (
        f"{100 * figures.coverage.estimate:.1f} % of the sets hold the true class (asked for: "
        f"{100 * coverage:g} %), with {figures.size.estimate:.2f} classes on average, "
        f"{signed(change, 1)} % compared with the plain image's{empty}"
    )


def _figures(one: SetFigures, whole: bool) -> tuple[Cell, ...]:
    change = one.size_change
    return (
        _share(one.coverage),
        Cell(f"{100 * one.plain_coverage.estimate:.1f}"),
        Cell(f"{one.size.estimate:.2f}", interval=_ends(one.size, 2) if whole else ""),
        Cell(f"{one.plain_size.estimate:.2f}"),
        Cell(signed(change.estimate, 2), interval=interval(change, 2)),
    )


def _share(one: Interval) -> Cell:
    return Cell(f"{100 * one.estimate:.1f}", interval=_ends(one, 1, 100))


def _ends(one: Interval, digits: int, scale: float = 1.0) -> str:
    return f"[{plain(one.low * scale, digits)}, {plain(one.high * scale, digits)}]"
