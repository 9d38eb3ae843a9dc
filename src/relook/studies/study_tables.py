"""What the studies' tables share: cells with mean and deviation, lines of Markdown."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from relook.evaluation.comparison import Measured

METRIC_FORMATS = {"accuracy": (100.0, 2), "log_likelihood": (1.0, 4), "cll": (1.0, 4)}
"""How the three metrics of the paper's tables are written: a factor and the decimals."""

METRIC_HEADS = {"accuracy": "acc. %", "log_likelihood": "LL", "cll": "cLL"}
METRIC_TEX = {"accuracy": r"Acc.~(\%)", "log_likelihood": "LL", "cll": "cLL"}


def measured_text(one: Measured, metric: str) -> str:
    """Return `−0.6231±0.0012`, or the mean alone where there is no deviation."""
    scale, digits = METRIC_FORMATS[metric]
    text = f"{scale * one.mean:.{digits}f}"
    if one.deviation:
        text += f"±{scale * one.deviation:.{digits}f}"
    return text.replace("-", "−")


def measured_tex(one: Measured, metric: str, *, bold: bool) -> str:
    """Return a cell as the paper writes it, `$-0.623\\pm0.001$`."""
    scale, digits = METRIC_FORMATS[metric]
    text = f"{scale * one.mean:.{digits}f}"
    if one.deviation:
        text += rf"\pm{scale * one.deviation:.{digits}f}"
    return rf"$\mathbf{{{text}}}$" if bold else f"${text}$"


def markdown_lines(
    heads: Sequence[str], rows: Iterable[Sequence[str]], texts: int = 1
) -> list[str]:
    """Return a table as lines of Markdown; the first `texts` columns are text, others numbers."""
    rules = ["---"] * texts + ["---:"] * (len(heads) - texts)
    return [markdown_line(cells) for cells in (heads, rules, *rows)]


def markdown_line(cells: Sequence[str]) -> str:
    """Return one row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()
