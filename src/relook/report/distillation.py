"""What a distilled network is worth, as a table."""

from __future__ import annotations

from relook.deploy.distil.verdict import Line, Verdict
from relook.foundation.wording import interval, plain, signed
from relook.report.tables import Cell, Column, Table

_HEADS = ("network, input", "views", "acc. %", "cLL", "ECE %", "gain in cLL", "in accuracy")


def distil_table(verdict: Verdict) -> Table:
    """Return the original and the distilled network, plain and with the policy, in one table."""
    columns = tuple(Column(head, number=place > 0) for place, head in enumerate(_HEADS))
    rows = tuple(_cells(line) for line in verdict.lines)
    return Table(f"{verdict.images:,} labelled images", columns, (rows,))


def _cells(line: Line) -> tuple[Cell, ...]:
    gains = [Cell(""), Cell("")]
    if line.over_plain is not None:
        cll, accuracy = line.over_plain["cll"], line.over_plain["accuracy"]
        gains = [
            Cell(signed(cll.estimate, 4), interval=interval(cll, 4)),
            Cell(signed(100 * accuracy.estimate, 1), interval=interval(accuracy, 1, 100)),
        ]
    return (
        Cell(line.name),
        Cell(str(line.views)),
        Cell(f"{100 * line.accuracy:.2f}"),
        Cell(plain(line.cll, 4)),
        Cell(f"{100 * line.ece:.1f}"),
        *gains,
    )
