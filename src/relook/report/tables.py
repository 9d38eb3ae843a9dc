"""A comparison as tables: for the terminal, CSV, Markdown, and LaTeX as in the paper."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relook.evaluation.baselines import BASELINES, POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import METRICS_OF_A_ROW, Comparison, Measured, Row
from relook.evaluation.verdict import frontier
from relook.io.files import csv_safe
from relook.numerics.intervals import Interval

_BAR = 10

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
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


def shown_rows(comparison: Comparison) -> list[Row]:
    """Return the rows of the budgets asked for, and of the methods with a budget of their own."""
    return [
        row
        for row in comparison.rows
        if row.budget in comparison.budgets or has_own_budget(row.method)
    ]


def print_comparison(comparison: Comparison, console: Console | None = None) -> None:
    """Print the table and the verdict."""
    console = console or Console(highlight=False)
    console.print(fitting_table(comparison, console))
    console.print(Text(comparison.verdict.sentence, style="bold"), soft_wrap=True)


def fitting_table(comparison: Comparison, console: Console) -> Table:
    """Return the table with as many columns of intervals, two at most, as the terminal holds."""
    unlimited = console.options.update(max_width=10_000)
    tables = [comparison_table(comparison, intervals=count) for count in (2, 1, 0)]
    widths = [console.measure(table, options=unlimited).maximum for table in tables]
    fitting = [table for table, w in zip(tables, widths, strict=True) if w <= console.width]
    return (fitting or tables[-1:])[0]


def comparison_table(comparison: Comparison, *, intervals: int = 2) -> Table:
    """Return a table for the terminal; the best that a budget buys is bold.

    Intervals are those of the difference in cLL, at 95 %: to the best baseline that costs at
    most the same, then to the plain image.
    """
    table = new_table(
        f"{comparison.images:,} held-out images; cLL: calibrated log-likelihood, higher is better"
    )
    table.add_column("method")
    names = ("views", "time ×", "cLL", "acc. %", "cLL − best baseline", "cLL − plain image")
    for name in names[: 4 + intervals]:
        table.add_column(name, justify="right", no_wrap=True)
    rows = shown_rows(comparison)
    last = None
    for row in rows:
        again = row.method == last
        if (
            last is not None
            and not again
            and not (has_own_budget(row.method) and has_own_budget(last))
        ):
            table.add_section()
        last = row.method
        cells = [
            Text("" if again else row.label),
            Text(str(row.views)),
            Text(f"{row.slowdown:.1f}"),
            _bold(_measured(row.metrics["cll"], 4), _is_best(row, rows, "cll")),
            _bold(_measured(row.metrics["accuracy"], 2, 100), _is_best(row, rows, "accuracy")),
            Text(_difference(row.over_rival)),
            Text(_difference(row.over_plain)),
        ]
        table.add_row(*cells[: 5 + intervals])
    return table


def frontier_table(comparison: Comparison) -> Table:
    """Return the rows that nothing cheaper reaches in cLL: what more time buys."""
    rows = frontier(shown_rows(comparison))
    table = new_table("what more time buys")
    for name in ("time ×", "views"):
        table.add_column(name, justify="right")
    table.add_column("method", no_wrap=True)
    for name in ("cLL", "accuracy %"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    lowest, highest = rows[0].metrics["cll"].mean, rows[-1].metrics["cll"].mean
    for row in rows:
        share = (row.metrics["cll"].mean - lowest) / ((highest - lowest) or 1.0)
        table.add_row(
            f"{row.slowdown:.1f}",
            str(row.views),
            Text(row.label),
            _measured(row.metrics["cll"], 4),
            _measured(row.metrics["accuracy"], 2, 100),
            "▇" * (1 + round(_BAR * share)),
        )
    return table


def to_csv(comparison: Comparison) -> str:
    """Return every scored row as CSV, one line a method and budget.

    Text that a spreadsheet would take for a formula gets a leading apostrophe.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    ends = ("", "_low", "_high")
    differences = [
        (field, metric) for field in ("over_plain", "over_rival") for metric in ("cll", "accuracy")
    ]
    writer.writerow(
        [
            "method",
            "label",
            "budget",
            "views",
            "slowdown",
            *(name + end for name in METRICS_OF_A_ROW for end in ("", "_deviation")),
            *(f"{metric}_{field}{end}" for field, metric in differences for end in ends),
            "rival",
        ]
    )
    for row in comparison.rows:
        measured = [row.metrics.get(name) for name in METRICS_OF_A_ROW]
        intervals = [(getattr(row, field) or {}).get(metric) for field, metric in differences]
        writer.writerow(
            [
                csv_safe(row.method),
                csv_safe(row.label),
                row.budget,
                row.views,
                f"{row.slowdown:.4g}",
                *(value for one in measured for value in _pair(one)),
                *(value for one in intervals for value in _triple(one)),
                csv_safe(row.rival or ""),
            ]
        )
    return file.getvalue()


def to_markdown(comparison: Comparison) -> str:
    """Return the table of the asked budgets as Markdown; the best of each budget is bold."""
    rows = shown_rows(comparison)
    lines = [
        "| method | views | time × | cLL | accuracy % | cLL − best baseline | cLL − plain image |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            row.label.replace("|", r"\|"),
            str(row.views),
            f"{row.slowdown:.1f}",
            _starred(_measured(row.metrics["cll"], 4), _is_best(row, rows, "cll")),
            _starred(_measured(row.metrics["accuracy"], 2, 100), _is_best(row, rows, "accuracy")),
            _difference(row.over_rival),
            _difference(row.over_plain),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, "", comparison.verdict.sentence, ""])


def to_latex(comparison: Comparison, dataset: str = "", model: str = "") -> str:
    """Return cLL and accuracy by method and budget, in the form of the paper's appendix.

    The table needs `\\usepackage{booktabs,graphicx}`. The best of each half is bold.
    """
    rows = shown_rows(comparison)
    groups = _by_method(rows)
    width = len(rows)
    halves = ((3, 2 + width), (3 + width, 2 + 2 * width))
    lines = [
        r"\begin{table*}",
        r"\centering",
        r"\resizebox{1.\textwidth}{!}{",
        rf"\begin{{tabular}}{{{'l' * (2 + 2 * width)}}}",
        r"\toprule",
        rf" & & \multicolumn{{{width}}}{{c}}{{\footnotesize Calibrated log-likelihood}} & "
        rf"\multicolumn{{{width}}}{{c}}{{\footnotesize Accuracy (\%)}} \\",
        " ".join(rf"\cmidrule(l){{{first}-{last}}}" for first, last in halves),
        " & ".join(["Dataset", "Model", *2 * [_spanning(method, own) for method, own in groups]])
        + r" \\",
        " ".join(_rules(groups, [first for first, _ in halves])),
        " & ".join(["", "", *2 * [_budget_head(row) for row in rows]]) + r" \\",
        r"\midrule",
        " & ".join([tex(dataset), tex(model), *_figures(rows)]) + r" \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"}",
        rf"\caption{{{_caption(comparison, groups)}}}",
        r"\label{table:acc-cll}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def new_table(title: str) -> Table:
    """Return an empty table in the style of the house."""
    return Table(
        title=title,
        title_justify="left",
        title_style="",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
        show_edge=False,
    )


def _is_best(row: Row, rows: Sequence[Row], metric: str) -> bool:
    """Whether nothing that costs at most the same budget is better."""
    affordable = [one.metrics[metric].mean for one in rows if one.budget <= row.budget]
    return row.metrics[metric].mean >= max(affordable)


def _measured(one: Measured, digits: int, scale: float = 1.0) -> str:
    text = f"{scale * one.mean:.{digits}f}".replace("-", "−")
    return f"{text}±{scale * one.deviation:.{digits}f}" if one.deviation else text


def _bold(text: str, wanted: bool) -> Text:
    return Text(text, style="bold" if wanted else "")


def _starred(text: str, wanted: bool) -> str:
    return f"**{text}**" if wanted else text


def _difference(intervals: Mapping[str, Interval] | None) -> str:
    return "" if intervals is None else str(intervals["cll"]).replace("-", "−")


def _pair(one: Measured | None) -> tuple[str, str]:
    return ("", "") if one is None else (f"{one.mean:.8g}", f"{one.deviation:.4g}")


def _triple(one: Interval | None) -> tuple[str, str, str]:
    if one is None:
        return "", "", ""
    return f"{one.estimate:.6g}", f"{one.low:.6g}", f"{one.high:.6g}"


def _by_method(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.method, []).append(row)
    return list(groups.items())


def _spanning(method: str, own: Sequence[Row]) -> str:
    return rf"\multicolumn{{{len(own)}}}{{c}}{{{tex(SHORT_NAMES.get(method, method))}}}"


def _rules(groups: Sequence[tuple[str, list[Row]]], starts: Sequence[int]) -> list[str]:
    found = []
    for start in starts:
        column = start
        for _, own in groups:
            found.append(rf"\cmidrule(l){{{column}-{column + len(own) - 1}}}")
            column += len(own)
    return found


def _budget_head(row: Row) -> str:
    if has_own_budget(row.method):
        return ""
    return rf"\multicolumn{{1}}{{c}}{{\scriptsize{{{row.budget}}}}}"


def _figures(rows: Sequence[Row]) -> list[str]:
    found = []
    for metric, digits, scale in (("cll", 3, 1.0), ("accuracy", 2, 100.0)):
        best = max(row.metrics[metric].mean for row in rows)
        for row in rows:
            one = row.metrics[metric]
            text = f"{scale * one.mean:.{digits}f}".replace("-", "$-$")
            if one.deviation:
                text += rf" {{\tiny$\pm${scale * one.deviation:.{digits}f}}}"
            found.append(rf"\textbf{{{text}}}" if one.mean == best else text)
    return found


def _caption(comparison: Comparison, groups: Sequence[tuple[str, list[Row]]]) -> str:
    named = "; ".join(f"{tex(SHORT_NAMES.get(m, m))}: {tex(_about(own[0]))}" for m, own in groups)
    return (
        "Calibrated log-likelihood and accuracy of test-time augmentation methods on "
        f"{comparison.images} held-out images. {named}."
    )


def _about(row: Row) -> str:
    return BASELINES[row.method].about if row.method in BASELINES else row.label


def tex(text: str) -> str:
    """Return text with what LaTeX would take for commands made harmless."""
    return "".join(_LATEX.get(character, character) for character in text)
