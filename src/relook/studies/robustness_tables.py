"""A study of robustness as tables: for the terminal, CSV, Markdown, and LaTeX as in the paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from relook.foundation.wording import views_text
from relook.io.files import csv_safe
from relook.numerics.intervals import Interval
from relook.report.tables import SHORT_NAMES, new_table, tex
from relook.studies.robustness_result import MEAN, Robustness, ShiftRow


def method_table(study: Robustness) -> Table:
    """Return a line a method and budget; the lowest error that a budget buys is bold."""
    table = new_table(_title(study))
    table.add_column("method", no_wrap=True)
    for name in _columns(study):  # in a narrow terminal the intervals break, not the names
        table.add_column(name, justify="right", no_wrap=" − " not in name)
    last = None
    for row in study.rows:
        if last is not None and row.method != last:
            table.add_section()
        label = "" if row.method == last else row.label
        last = row.method
        table.add_row(Text(label), *(Text(*cell) for cell in _cells(study, row)))
    return table


def corruption_table(study: Robustness) -> Table:
    """Return uCE by corruption, a column a method at its largest budget."""
    rows = study.largest()
    table = new_table("error (%) by corruption, mean over severities; the lowest is bold")
    table.add_column("corruption")
    for row in rows:
        heading = f"{SHORT_NAMES.get(row.method, row.method)} ×{row.views}"
        table.add_column(heading, justify="right", no_wrap=True)
    for name, values in _by_corruption(study, rows):
        if name == MEAN:
            table.add_section()
        cells = [Text(f"{100 * v:.2f}", "bold" if v == min(values) else "") for v in values]
        table.add_row(Text(name.replace("_", " ")), *cells)
    return table


def robustness_csv(study: Robustness) -> str:
    """Return every error and cLL as CSV, one line a method, budget, corruption and severity.

    The clean images are severity 0 of "clean".
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    heading = ("method", "label", "budget", "views", "corruption", "severity", "error", "cll")
    writer.writerow(heading)
    for row in study.rows:
        own = [csv_safe(row.method), csv_safe(row.label), row.budget, row.views]
        writer.writerow([*own, "clean", 0, f"{row.clean_error:.8g}", f"{row.clean_cll:.8g}"])
        for name in study.corruptions:
            found = zip(study.severities, row.errors[name], row.clls[name], strict=True)
            for severity, error, cll in found:
                writer.writerow([*own, name, severity, f"{error:.8g}", f"{cll:.8g}"])
    return file.getvalue()


def robustness_markdown(study: Robustness) -> str:
    """Return both tables and the answer as Markdown."""
    columns = ("method", *_columns(study))
    lines = [_title(study), "", _line(columns), _line(["---", *["---:"] * (len(columns) - 1)])]
    for row in study.rows:
        cells = [f"**{text}**" if style else text for text, style in _cells(study, row)]
        lines.append(_line([row.label, *cells]))
    rows = study.largest()
    heads = [f"{SHORT_NAMES.get(row.method, row.method)}, {views_text(row.views)}" for row in rows]
    lines += ["", _line(["corruption", *heads]), _line(["---", *["---:"] * len(heads)])]
    for name, values in _by_corruption(study, rows):
        marked = [f"**{100 * v:.2f}**" if v == min(values) else f"{100 * v:.2f}" for v in values]
        lines.append(_line([name.replace("_", " "), *marked]))
    return "\n".join([*lines, "", study.sentence, ""])


def robustness_latex(study: Robustness, dataset: str = "", model: str = "") -> str:
    """Return muCE (or mCE) by method and budget, in the form of the paper's appendix.

    The table needs `\\usepackage{booktabs}`. The lowest is bold.
    """
    groups = _by_method(study.rows)
    count = len(study.rows)
    measure = "Mean corruption error (mCE)" if study.normalised else _UNNORMALISED
    heads = [rf"\multicolumn{{{len(own)}}}{{c}}{{{tex(_short(own[0]))}}}" for own in groups]
    budgets = [
        "" if row.method == "plain" else rf"{{\scriptsize {row.budget}}}" for row in study.rows
    ]
    lines = [
        r"\begin{table*}",
        r"\centering",
        rf"\begin{{tabular}}{{ll{'c' * count}}}",
        r"\toprule",
        rf" & & \multicolumn{{{count}}}{{c}}{{{measure}}} \\",
        rf"\cmidrule(l){{3-{2 + count}}}",
        " & ".join(["Dataset", "Model", *heads]) + r" \\",
        " & ".join(["", "", *budgets]) + r" \\",
        r"\midrule",
        " & ".join([tex(dataset), tex(model), *_figures(study)]) + r" \\",
        r"\bottomrule",
        r"\end{tabular}",
        rf"\caption{{{measure} on {study.images} corrupted images, {len(study.corruptions)} "
        rf"corruptions at {len(study.severities)} severities.}}",
        r"\label{table:corruption-error}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


_UNNORMALISED = r"Mean unnormalized corruption error (muCE, \%)"


def _title(study: Robustness) -> str:
    return (
        f"{study.images:,} images × {len(study.corruptions)} corruptions × "
        f"{len(study.severities)} severities; muCE: mean error under corruption, lower is better"
    )


def _columns(study: Robustness) -> tuple[str, ...]:
    alexnet = ("mCE",) if study.normalised else ()
    differences = ("muCE − best baseline", "muCE − plain image")
    return ("views", "clean %", "muCE %", *alexnet, "cLL", *differences)


def _cells(study: Robustness, row: ShiftRow) -> list[tuple[str, str]]:
    """Return the texts of a row after its label, each with its style."""
    affordable = [one.muce.mean for one in study.rows if one.budget <= row.budget]
    best = "bold" if row.muce.mean <= min(affordable) else ""
    spread = f"±{100 * row.muce.deviation:.2f}" if row.muce.deviation else ""
    return [
        (str(row.views), ""),
        (f"{100 * row.clean_error:.2f}", ""),
        (f"{100 * row.muce.mean:.2f}{spread}", best),
        *([(f"{row.mce:.3f}", "")] if study.normalised else []),
        (f"{row.cll:.4f}".replace("-", "−"), ""),
        (_difference(row.over_rival), ""),
        (_difference(row.over_plain), ""),
    ]


def _difference(intervals: Mapping[str, Interval] | None) -> str:
    if intervals is None:
        return ""
    one = intervals[MEAN]
    text = f"{100 * one.estimate:+.2f} [{100 * one.low:+.2f}, {100 * one.high:+.2f}]"
    return text.replace("-", "−")


def _by_corruption(study: Robustness, rows: Sequence[ShiftRow]) -> list[tuple[str, list[float]]]:
    by_name = [(name, [row.uce[name] for row in rows]) for name in study.corruptions]
    return [*by_name, (MEAN, [row.muce.mean for row in rows])]


def _by_method(rows: Sequence[ShiftRow]) -> list[list[ShiftRow]]:
    groups: dict[str, list[ShiftRow]] = {}
    for row in rows:
        groups.setdefault(row.method, []).append(row)
    return list(groups.values())


def _short(row: ShiftRow) -> str:
    return SHORT_NAMES.get(row.method, row.method)


def _figures(study: Robustness) -> list[str]:
    values = [row.mce if study.normalised else 100 * row.muce.mean for row in study.rows]
    return [
        rf"\textbf{{{value:.3f}}}" if value == min(values) else f"{value:.3f}" for value in values
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
