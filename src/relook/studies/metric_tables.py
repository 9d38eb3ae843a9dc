"""Every metric of every method, model by model: accuracy, likelihoods, Brier, ECE, temperature."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relook.evaluation.baselines import has_own_budget
from relook.evaluation.comparison import Comparison, Row
from relook.foundation.wording import measured, with_minus_signs
from relook.io.files import csv_safe
from relook.numerics.intervals import Interval
from relook.report.comparison_tables import shown_rows
from relook.report.tables import tex
from relook.studies.study_tables import csv_text, markdown_lines


@dataclass(frozen=True)
class Column:
    """A metric as it is written: its head, a factor and the decimals."""

    metric: str
    head: str
    scale: float
    digits: int


COLUMNS = (
    Column("accuracy", "acc. %", 100.0, 2),
    Column("log_likelihood", "LL", 1.0, 4),
    Column("cll", "cLL", 1.0, 4),
    Column("brier", "Brier", 1.0, 4),
    Column("brier_calibrated", "Brier cal.", 1.0, 4),
    Column("ece", "ECE %", 100.0, 2),
    Column("ece_calibrated", "ECE % cal.", 100.0, 2),
    Column("temperature", "T", 1.0, 3),
)
_TEXTS = ("data", "model", "method")
_DIFFERENCES = {"over_plain": "cLL − plain image", "over_rival": "cLL − best baseline"}

Named = Mapping[tuple[str, str], Comparison]
"""A comparison for each data set and model."""


def metrics_markdown(found: Named, budgets: Sequence[int] = ()) -> str:
    """Return a line for each method at each of the budgets (default: all that were asked for)."""
    heads = [*_TEXTS, "views", *(one.head for one in COLUMNS), *_DIFFERENCES.values()]
    rows = [
        [
            *names,
            row.label,
            str(row.views),
            *(measured(row.metrics[one.metric], one.digits, one.scale) for one in COLUMNS),
            *(_interval(getattr(row, field)) for field in _DIFFERENCES),
        ]
        for names, row in _rows(found, budgets)
    ]
    return "\n".join(markdown_lines(heads, rows, texts=len(_TEXTS))) + "\n"


def metrics_csv(found: Named, budgets: Sequence[int] = ()) -> str:
    """Return the same lines as CSV, differences with both ends of their intervals."""
    ends = ("estimate", "low", "high")
    heads: list[object] = ["data", "model", "method", "budget", "views"]
    heads += [one.metric for one in COLUMNS]
    heads += [f"cll_{field}_{end}" for field in _DIFFERENCES for end in ends]
    lines: list[list[object]] = [heads]
    for (data, model), row in _rows(found, budgets):
        line: list[object] = [csv_safe(data), csv_safe(model), row.method, row.budget, row.views]
        line += [f"{row.metrics[one.metric].mean:.8g}" for one in COLUMNS]
        for field in _DIFFERENCES:
            own = (getattr(row, field) or {}).get("cll")
            line += ["" if own is None else f"{getattr(own, end):.8g}" for end in ends]
        lines.append(line)
    return csv_text(lines)


def metrics_latex(found: Named, budgets: Sequence[int] = ()) -> str:
    """Return the metrics for a paper; it needs `\\usepackage{booktabs,graphicx}`."""
    heads = [*_TEXTS, "views", *(one.head for one in COLUMNS)]
    body = [
        " & ".join(
            [*map(tex, (*names, row.label)), str(row.views)]
            + [f"${_number(row, column)}$" for column in COLUMNS]
        )
        + r" \\"
        for names, row in _rows(found, budgets)
    ]
    lines = [
        r"\begin{table*}",
        r"\centering",
        r"\resizebox{1.\textwidth}{!}{",
        rf"\begin{{tabular}}{{{'l' * len(_TEXTS)}{'r' * (1 + len(COLUMNS))}}}",
        r"\toprule",
        " & ".join(map(tex, heads)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        "}",
        r"\caption{Every metric on images that no search has seen.}",
        r"\label{table:metrics}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _rows(found: Named, budgets: Sequence[int]) -> Iterator[tuple[tuple[str, str], Row]]:
    for names, comparison in found.items():
        for row in shown_rows(comparison):
            if not budgets or row.budget in budgets or has_own_budget(row.method):
                yield names, row


def _number(row: Row, column: Column) -> str:
    return f"{column.scale * row.metrics[column.metric].mean:.{column.digits}f}"


def _interval(intervals: Mapping[str, Interval] | None) -> str:
    return "" if intervals is None else with_minus_signs(str(intervals["cll"]))
