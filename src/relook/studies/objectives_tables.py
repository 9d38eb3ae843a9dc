"""A study of objectives as tables: the paper's Table 1, a column a model.

Every function takes studies by their model's name, all with the same objectives and budgets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relook.io.files import csv_safe
from relook.numerics.intervals import Interval
from relook.report.tables import new_table, tex
from relook.studies.objectives_result import PLAIN, ObjectiveRow, Objectives
from relook.studies.study_tables import (
    METRIC_HEADS,
    METRIC_TEX,
    csv_text,
    markdown_lines,
    measured_tex,
    measured_text,
)

Studies = Mapping[str, Objectives]
"""Studies by the name of their model."""

_SHORT = {"accuracy": "Acc."}


def fitting_table(study: Objectives, console: Console) -> Table:
    """Return the table with its intervals, if the terminal is wide enough for them."""
    whole = objectives_table(study)
    unlimited = console.options.update(max_width=10_000)
    wide = console.measure(whole, options=unlimited).maximum > console.width
    return objectives_table(study, intervals=False) if wide else whole


def objectives_table(study: Objectives, *, intervals: bool = True) -> Table:
    """Return a line an objective and budget; the best of each budget is bold."""
    table = new_table(_title(study))
    table.add_column("searched with", no_wrap=True)
    for name in ("views", *METRIC_HEADS.values(), *["cLL − searched with cLL"] * intervals):
        table.add_column(name, justify="right", no_wrap=True)
    last = None
    for row in study.rows:
        if last not in (None, row.objective) and len(study.budgets) > 1:
            table.add_section()
        label = "" if row.objective == last else row.label
        last = row.objective
        cells = [
            Text(measured_text(row.metrics[name], name), _style(study, row, name))
            for name in METRIC_HEADS
        ]
        table.add_row(Text(label), str(row.views), *cells, *[_difference(row.over_cll)] * intervals)
    return table


def objectives_markdown(studies: Studies, budget: int | None = None) -> str:
    """Return the paper's table: a block a metric, a line an objective, a column a model."""
    _, first = _first(studies)
    lines = [_caption(studies, budget), ""]
    rows = []
    for metric, head in METRIC_HEADS.items():
        for name in (PLAIN, *first.objectives):
            cells = [_cell(study, name, metric, budget) for study in studies.values()]
            rows.append([head, first.row(name, budget).label, *cells])
    lines += markdown_lines(["metric", "searched with", *studies], rows, texts=2)
    answers = [f"{model}: {study.sentence}" for model, study in studies.items()]
    return "\n".join([*lines, "", *answers, ""])


def objectives_csv(studies: Studies) -> str:
    """Return every row as CSV, one line a model, objective and budget."""
    _, first = _first(studies)
    metrics = list(first.rows[0].metrics)
    ends = ("", "_low", "_high")
    heads = ["model", "objective", "budget", "views", "runs", "images"]
    heads += [name + end for name in metrics for end in ("", "_deviation")]
    heads += [f"{name}_over_cll{end}" for name in METRIC_HEADS for end in ends]
    rows: list[Sequence[object]] = [heads]
    for model, study in studies.items():
        for row in study.rows:
            measured = [row.metrics[name] for name in metrics]
            cells: list[object] = [csv_safe(model), csv_safe(row.objective), row.budget, row.views]
            cells += [study.runs, study.images]
            for one in measured:
                cells += [f"{one.mean:.8g}", f"{one.deviation:.4g}"]
            for name in METRIC_HEADS:
                cells += _triple(None if row.over_cll is None else row.over_cll[name])
            rows.append(cells)
    return csv_text(rows)


def objectives_latex(studies: Studies, budget: int | None = None, dataset: str = "") -> str:
    """Return Table 1 as the paper has it; the best of each metric and model is bold.

    The table needs `\\usepackage{booktabs,multirow,graphicx}`. Accuracy, LL and cLL; the paper
    leaves LL out.
    """
    _, first = _first(studies)
    heads = " & ".join(["", r"\begin{tabular}[c]{@{}c@{}}GPS\\criterion\end{tabular}"])
    lines = [
        r"\begin{table}[]",
        r"\centering",
        rf"\resizebox{{\columnwidth}}{{!}}{{\begin{{tabular}}{{rc{'c' * len(studies)}}}",
        r"\toprule",
        f"{heads} & {' & '.join(tex(model) for model in studies)} \\\\",
    ]
    for metric, head in METRIC_TEX.items():
        lines.append(r"\midrule")
        count = len(first.objectives)
        for place, name in enumerate(first.objectives):
            side = rf"\multirow{{{count}}}{{*}}{{\rotatebox[origin=c]{{90}}{{{head}}}}}"
            cells = [_tex_cell(study, name, metric, budget) for study in studies.values()]
            own = [side if place == 0 else "", tex(_SHORT.get(name, first.row(name, budget).label))]
            lines.append(" & ".join([*own, *cells]) + r" \\")
    measured = f", measured on {tex(dataset)}" if dataset else ""
    lines += [
        r"\bottomrule",
        r"\end{tabular}}",
        rf"\caption{{Greedy policy search with different objectives{measured}: held-out "
        rf"performance of {budget or first.budgets[-1]} views, {first.runs} runs.}}",
        r"\label{table:gps_metrics}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _first(studies: Studies) -> tuple[str, Objectives]:
    return next(iter(studies.items()))


def _title(study: Objectives) -> str:
    several = f" of each of {study.runs} runs" if study.runs > 1 else ""
    return f"{study.images:,} held-out images{several}, one pool for all objectives"


def _caption(studies: Studies, budget: int | None) -> str:
    _, first = _first(studies)
    runs = f", mean ± deviation of {first.runs} runs" if first.runs > 1 else ""
    return f"{budget or first.budgets[-1]} views, {first.images:,} held-out images{runs}"


def _best(study: Objectives, metric: str, budget: int | None) -> float:
    return max(study.row(name, budget).metrics[metric].mean for name in study.objectives)


def _is_best(study: Objectives, row: ObjectiveRow, metric: str) -> bool:
    if row.objective == PLAIN:
        return False
    return row.metrics[metric].mean == _best(study, metric, row.budget)


def _style(study: Objectives, row: ObjectiveRow, metric: str) -> str:
    return "bold" if _is_best(study, row, metric) else ""


def _cell(study: Objectives, name: str, metric: str, budget: int | None) -> str:
    row = study.row(name, budget)
    text = measured_text(row.metrics[metric], metric)
    return f"**{text}**" if _is_best(study, row, metric) else text


def _tex_cell(study: Objectives, name: str, metric: str, budget: int | None) -> str:
    row = study.row(name, budget)
    return measured_tex(row.metrics[metric], metric, bold=_is_best(study, row, metric))


def _difference(intervals: Mapping[str, Interval] | None) -> str:
    return "" if intervals is None else str(intervals["cll"]).replace("-", "−")


def _triple(one: Interval | None) -> list[str]:
    if one is None:
        return ["", "", ""]
    return [f"{value:.6g}" for value in (one.estimate, one.low, one.high)]
