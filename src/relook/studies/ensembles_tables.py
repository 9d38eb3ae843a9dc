"""A study of ensembles as tables: for the terminal, CSV, Markdown, and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relook.evaluation.baselines import BASELINES, POLICY_METHOD
from relook.evaluation.comparison import METRICS_OF_A_ROW, Measured
from relook.io.files import csv_safe
from relook.numerics.intervals import Interval
from relook.report.tables import SHORT_NAMES, new_table, tex
from relook.studies.ensembles_result import (
    ENSEMBLE,
    PER_MEMBER,
    SINGLE,
    WAYS,
    EnsembleRow,
    Ensembles,
)

SHORT: Mapping[str, str] = {
    **SHORT_NAMES,
    "mtrain": "Tr",
    "mgrid": "M* 1",
    SINGLE: "GPS 1",
    ENSEMBLE: "GPS ens",
    PER_MEMBER: "GPS each",
}
"""The names of the paper's figure, and one for the way that it leaves open."""

_COLUMNS = ("budget", "views", "passes", "cLL", "accuracy %")
_DIFFERENCES = {
    "over_rival": "cLL − best baseline",
    "over_single": "cLL − GPS single",
    "over_plain": "cLL − plain image",
}


def ensembles_table(study: Ensembles, *, intervals: int = 2, alone: bool = False) -> Table:
    """Return a line a method and budget; the best that a budget buys is bold.

    `alone` is about single members, means over all. Intervals are at 95 %.
    """
    rows = study.alone() if alone else study.together()
    shown = _shown(rows, intervals)
    table = new_table(_title(study, alone))
    table.add_column("method", no_wrap=True)
    for name in (*_COLUMNS, *(_DIFFERENCES[key] for key in shown)):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in rows:
        if last is not None and row.method != last:
            table.add_section()
        label = "" if row.method == last else row.label
        last = row.method
        table.add_row(Text(label), *(Text(*cell) for cell in _cells(row, rows, shown)))
    return table


def fitting_ensembles_table(study: Ensembles, console: Console, *, alone: bool = False) -> Table:
    """Return the table with as many columns of intervals, two at most, as the terminal holds."""
    unlimited = console.options.update(max_width=10_000)
    tables = [ensembles_table(study, intervals=count, alone=alone) for count in (2, 1, 0)]
    widths = [console.measure(table, options=unlimited).maximum for table in tables]
    fitting = [table for table, w in zip(tables, widths, strict=True) if w <= console.width]
    return (fitting or tables[-1:])[0]


def ensembles_csv(study: Ensembles) -> str:
    """Return every row with all metrics and intervals as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    pairs = [(difference, metric) for difference in _DIFFERENCES for metric in ("cll", "accuracy")]
    writer.writerow(
        [
            *("method", "label", "members", "budget", "views", "passes"),
            *(part for name in METRICS_OF_A_ROW for part in (name, f"{name}_deviation")),
            *(f"{metric}_{name}{end}" for name, metric in pairs for end in ("", "_low", "_high")),
            "rival",
        ]
    )
    for row in study.rows:
        measured = [row.metrics[name] for name in METRICS_OF_A_ROW]
        intervals = [(getattr(row, name) or {}).get(metric) for name, metric in pairs]
        writer.writerow(
            [
                *(csv_safe(row.method), csv_safe(row.label), row.members),
                *(row.budget, row.views, row.passes),
                *(text for m in measured for text in (f"{m.mean:.8g}", f"{m.deviation:.4g}")),
                *(text for one in intervals for text in _triple(one)),
                csv_safe(row.rival or ""),
            ]
        )
    return file.getvalue()


def ensembles_markdown(study: Ensembles) -> str:
    """Return both tables and the answer as Markdown."""
    lines: list[str] = []
    for alone in (False, True):
        rows = study.alone() if alone else study.together()
        shown = _shown(rows, 3)
        heads = ["method", *_COLUMNS, *(_DIFFERENCES[key] for key in shown)]
        lines += [_title(study, alone), "", _line(heads)]
        lines.append(_line(["---", *["---:"] * (len(heads) - 1)]))
        for row in rows:
            cells = [f"**{text}**" if bold else text for text, bold in _cells(row, rows, shown)]
            lines.append(_line([row.label, *cells]))
        lines.append("")
    return "\n".join([*lines, study.sentence, ""])


def ensembles_latex(study: Ensembles, dataset: str = "", model: str = "") -> str:
    """Return cLL and accuracy of the ensemble by method and budget, as the paper's tables do.

    The table needs `\\usepackage{booktabs,graphicx}`. The best of each line is bold.
    """
    rows = study.together()
    groups = _by_method(rows)
    heads = [rf"\multicolumn{{{len(own)}}}{{c}}{{{tex(SHORT[own[0].method])}}}" for own in groups]
    budgets = ["" if _fixed(row) else rf"{{\scriptsize {row.budget}}}" for row in rows]
    name = " ".join(part for part in (dataset, model) if part) or f"{len(study.members)} members"
    lines = [
        r"\begin{table*}",
        r"\centering",
        r"\resizebox{1.\textwidth}{!}{",
        rf"\begin{{tabular}}{{ll{'c' * len(rows)}}}",
        r"\toprule",
        " & ".join(["", "", *heads]) + r" \\",
        " & ".join(["", "", *budgets]) + r" \\",
        r"\midrule",
        *(
            " & ".join([tex(name), label, *_figures(rows, metric, scale, digits)]) + r" \\"
            for metric, label, scale, digits in (
                ("cll", "cLL", 1.0, 3),
                ("accuracy", r"Accuracy (\%)", 100.0, 2),
            )
        ),
        r"\bottomrule",
        r"\end{tabular}",
        r"}",
        rf"\caption{{An ensemble of {len(study.members)} members on {study.images} held-out "
        r"images; columns are methods and views for each member.}",
        r"\label{table:ensembles}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _title(study: Ensembles, alone: bool) -> str:
    if alone:
        return f"one member alone, mean ± deviation over {len(study.members)}, with its own policy"
    return (
        f"{len(study.members)} members together, {study.images:,} held-out images; budget and "
        "views for each member, passes in all"
    )


def _shown(rows: Sequence[EnsembleRow], intervals: int) -> list[str]:
    """Return which differences have a column: those that any row has."""
    there = [key for key in _DIFFERENCES if any(getattr(row, key) is not None for row in rows)]
    return there[:intervals]


def _cells(
    row: EnsembleRow, rows: Sequence[EnsembleRow], shown: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the texts of a row after its label, each with its style."""
    cells = [(str(number), "") for number in (row.budget, row.views, row.passes)]
    for metric, scale, digits in (("cll", 1.0, 4), ("accuracy", 100.0, 2)):
        affordable = [one.metrics[metric].mean for one in rows if one.budget <= row.budget]
        best = row.metrics[metric].mean >= max(affordable)
        cells.append((_measured(row.metrics[metric], scale, digits), "bold" if best else ""))
    return [*cells, *((_difference(getattr(row, key)), "") for key in shown)]


def _measured(one: Measured, scale: float, digits: int) -> str:
    text = f"{scale * one.mean:.{digits}f}".replace("-", "−")
    return f"{text}±{scale * one.deviation:.{digits}f}" if one.deviation else text


def _difference(intervals: Mapping[str, Interval] | None) -> str:
    return "" if intervals is None else str(intervals["cll"]).replace("-", "−")


def _figures(rows: Sequence[EnsembleRow], metric: str, scale: float, digits: int) -> list[str]:
    best = max(row.metrics[metric].mean for row in rows)
    found = []
    for row in rows:
        one = row.metrics[metric]
        text = f"{scale * one.mean:.{digits}f}".replace("-", "$-$")
        if one.deviation:
            text += rf" {{\tiny$\pm${scale * one.deviation:.{digits}f}}}"
        found.append(rf"\textbf{{{text}}}" if one.mean == best else text)
    return found


def _by_method(rows: Sequence[EnsembleRow]) -> list[list[EnsembleRow]]:
    groups: dict[str, list[EnsembleRow]] = {}
    for row in rows:
        groups.setdefault(row.method, []).append(row)
    return list(groups.values())


def _fixed(row: EnsembleRow) -> bool:
    """Whether the method has a number of views of its own."""
    own = row.method not in (*WAYS, POLICY_METHOD)
    return own and BASELINES[row.method].budget is not None


def _triple(one: Interval | None) -> tuple[str, str, str]:
    if one is None:
        return "", "", ""
    return f"{one.estimate:.6g}", f"{one.low:.6g}", f"{one.high:.6g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
