"""A study of magnitudes as tables: for the terminal, CSV, Markdown and LaTeX.

A column group a model: every function but the terminal's takes studies by their model's name.
"""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from relook.io.files import csv_safe
from relook.report.tables import new_table, tex
from relook.studies.magnitudes_result import CHOOSERS, MagnitudeRow, Magnitudes
from relook.studies.study_tables import (
    METRIC_HEADS,
    METRIC_TEX,
    csv_text,
    markdown_lines,
    measured_tex,
    measured_text,
)

Studies = Mapping[str, Magnitudes]
"""Studies by the name of their model."""


def magnitudes_table(study: Magnitudes) -> Table:
    """Return a line a magnitude; the best of each metric, which marks its M*, is bold."""
    table = new_table(_title(study))
    table.add_column("M", justify="right")
    for name in (*METRIC_HEADS.values(), "temperature"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in study.rows:
        cells = [
            Text(measured_text(row.metrics[name], name), _style(study, row, name))
            for name in METRIC_HEADS
        ]
        temperature = Text(f"{row.metrics['temperature'].mean:.2f}")
        table.add_row(Text(f"{row.magnitude:g}"), *cells, temperature)
    return table


def best_table(study: Magnitudes) -> Table:
    """Return M* by each metric, what it is worth, and how it varies over the runs."""
    table = new_table("M* by each metric")
    table.add_column("chosen by")
    for name in ("M*", *METRIC_HEADS.values()):
        table.add_column(name, justify="right", no_wrap=True)
    if study.runs > 1:
        table.add_column("M* of the runs alone", justify="right")
    for metric, label in CHOOSERS.items():
        row = study.best(metric)
        cells = [label, f"{row.magnitude:g}"]
        cells += [measured_text(row.metrics[name], name) for name in METRIC_HEADS]
        if study.runs > 1:
            cells.append(_alone(study, metric))
        table.add_row(*map(Text, cells))
    return table


def magnitudes_csv(studies: Studies) -> str:
    """Return every metric of every run as CSV."""
    metrics = list(next(iter(studies.values())).rows[0].values)
    rows: list[list[object]] = [["model", "views", "run", "magnitude", *metrics]]
    for model, study in studies.items():
        for row in study.rows:
            for run in range(study.runs):
                values = [f"{row.values[name][run]:.8g}" for name in metrics]
                rows.append(
                    [csv_safe(model), study.views, run, f"{row.magnitude:g}", *values]
                )  # fmt: skip
    return csv_text(rows)


def magnitudes_markdown(studies: Studies) -> str:
    """Return the grids and the choices as Markdown."""
    parts = []
    for model, study in studies.items():
        lines = [f"{model}: {_title(study)}" if model else _title(study), ""]
        heads = ["M", *METRIC_HEADS.values()]
        grid = [
            [f"{row.magnitude:g}", *(_starred(study, row, name) for name in METRIC_HEADS)]
            for row in study.rows
        ]
        lines += markdown_lines(heads, grid, texts=0)
        parts.append("\n".join([*lines, "", study.sentence, ""]))
    return "\n".join(parts)


def magnitudes_latex(studies: Studies) -> str:
    """Return M* by each metric, and what it is worth, a block of lines a model.

    The table needs `\\usepackage{booktabs}`.
    """
    views = sorted({study.views for study in studies.values()})
    lines = [
        r"\begin{table}",
        r"\centering",
        r"\begin{tabular}{llcccc}",
        r"\toprule",
        " & ".join(["Model", "Chosen by", "$M^*$", *METRIC_TEX.values()]) + r" \\",
    ]
    for model, study in studies.items():
        lines.append(r"\midrule")
        for place, metric in enumerate(CHOOSERS):
            row = study.best(metric)
            cells = [
                measured_tex(row.metrics[name], name, bold=row is study.best(name))
                for name in METRIC_TEX
            ]
            own = [tex(model) if place == 0 else "", METRIC_TEX[metric], f"${row.magnitude:g}$"]
            lines.append(" & ".join([*own, *cells]) + r" \\")
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        r"\caption{The magnitude $M^*$ of test-time RandAugment by the metric that it is chosen "
        rf"by, {' or '.join(map(str, views))} views.}}",
        r"\label{table:mgrid}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _title(study: Magnitudes) -> str:
    runs = f", mean ± deviation of {study.runs} runs" if study.runs > 1 else ""
    return (
        f"{study.images:,} images, {study.views} views of RandAugment with magnitudes up to M{runs}"
    )


def _alone(study: Magnitudes, metric: str) -> str:
    return ", ".join(f"{magnitude:g}" for magnitude in study.best_by_run(metric))


def _style(study: Magnitudes, row: MagnitudeRow, metric: str) -> str:
    return "bold" if row is study.best(metric) else ""


def _starred(study: Magnitudes, row: MagnitudeRow, metric: str) -> str:
    text = measured_text(row.metrics[metric], metric)
    return f"**{text}**" if row is study.best(metric) else text
