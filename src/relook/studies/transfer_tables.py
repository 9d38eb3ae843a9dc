"""A study of transfer as tables: for the terminal, CSV, Markdown, and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from relook.evaluation.baselines import label_of
from relook.evaluation.comparison import METRICS_OF_A_ROW
from relook.foundation.wording import views_text
from relook.io.files import csv_safe
from relook.numerics.intervals import Interval
from relook.report.tables import SHORT_NAMES, new_table, tex
from relook.studies.transfer_result import Transfer, TransferCell, TransferTarget

METRICS = {"cll": ("cLL", 1.0, 4), "accuracy": ("accuracy (points)", 100.0, 2)}
"""What a matrix can show: its name, scale and digits."""


def matrix_table(
    study: Transfer, metric: str = "cll", budget: int | None = None, *, intervals: bool = True
) -> Table:
    """Return a line a policy and a column a target; a difference beyond chance is bold."""
    budget = study.budgets[-1] if budget is None else budget
    table = new_table(_title(study, metric, budget))
    table.add_column("policy of", no_wrap=True)
    for target in study.targets:
        table.add_column(_head(target), justify="right", no_wrap=not intervals)
    for number, source in enumerate((*study.policies, *study.baselines)):
        if number == len(study.policies):
            table.add_section()
        cells = [study.cell(source, target.name, budget) for target in study.targets]
        texts = [
            Text(
                _text(study, cell, metric, intervals), "bold" if _clear(study, cell, metric) else ""
            )
            for cell in cells
        ]
        table.add_row(Text(source_label(source, study)), *texts)
    return table


def fitting_matrix(study: Transfer, metric: str, console: Console) -> Table:
    """Return the matrix of the largest budget, with intervals if the terminal is wide enough."""
    whole = matrix_table(study, metric)
    unlimited = console.options.update(max_width=10_000)
    fits = console.measure(whole, options=unlimited).maximum <= console.width
    return whole if fits else matrix_table(study, metric, intervals=False)


def transfer_csv(study: Transfer) -> str:
    """Return every policy and baseline on every target at every budget, one line each."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    differences = ("change", "over_crops", "over_plain")
    writer.writerow(
        [
            *("policy", "kind", "target", "data", "images", "budget", "views", "own"),
            *(part for name in METRICS_OF_A_ROW for part in (name, f"{name}_deviation")),
            *(
                f"{metric}_{difference}{end}"
                for difference in differences
                for metric in METRICS
                for end in ("", "_low", "_high")
            ),
        ]
    )
    for cell in study.cells:
        target = study.target(cell.target)
        writer.writerow(
            [
                csv_safe(cell.source),
                "policy" if cell.source in study.policies else "baseline",
                *(csv_safe(cell.target), csv_safe(target.data), target.images),
                *(cell.budget, cell.views, int(cell.source == target.own)),
                *_measured(cell),
                *(
                    text
                    for difference in differences
                    for metric in METRICS
                    for text in _triple((getattr(cell, difference) or {}).get(metric))
                ),
            ]
        )
    return file.getvalue()


def transfer_markdown(study: Transfer) -> str:
    """Return the matrices of all budgets and the answer as Markdown."""
    lines = []
    for budget in reversed(study.budgets):
        for metric in METRICS:
            lines += [_title(study, metric, budget), ""]
            lines += [_line(["policy of", *(_head(target) for target in study.targets)])]
            lines += [_line(["---", *["---:"] * len(study.targets)])]
            for source in (*study.policies, *study.baselines):
                cells = [study.cell(source, target.name, budget) for target in study.targets]
                texts = [
                    f"**{_text(study, cell, metric, True)}**"
                    if _clear(study, cell, metric)
                    else _text(study, cell, metric, True)
                    for cell in cells
                ]
                lines.append(_line([source_label(source, study), *texts]))
            lines.append("")
    return "\n".join([*lines, study.sentence, ""])


def transfer_latex(study: Transfer) -> str:
    """Return the change in cLL at the largest budget, the numbers of the paper's heat map.

    The table needs `\\usepackage{booktabs}`. A difference beyond chance is bold.
    """
    budget = study.budgets[-1]
    heads = [tex(_head(target).replace("−", "minus")) for target in study.targets]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'c' * len(study.targets)}}}",
        r"\toprule",
        rf" & \multicolumn{{{len(study.targets)}}}{{c}}{{Evaluated on}} \\",
        rf"\cmidrule(l){{2-{1 + len(study.targets)}}}",
        " & ".join(["Policy of", *heads]) + r" \\",
        r"\midrule",
        *(_latex_row(study, source, budget) for source in study.policies),
        *([r"\midrule"] if study.baselines else []),
        *(_latex_row(study, source, budget) for source in study.baselines),
        r"\bottomrule",
        r"\end{tabular}",
        r"\caption{The change in calibrated log-likelihood when a model's own policy is replaced "
        rf"by another model's, with {tex(views_text(budget))}; own policies with their calibrated "
        r"log-likelihood.}",
        r"\label{table:transfer}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def source_label(source: str, study: Transfer) -> str:
    """Return what tables call a policy or a baseline."""
    return source if source in study.policies else label_of(source)


def _title(study: Transfer, metric: str, budget: int) -> str:
    images = sorted({target.images for target in study.targets})
    count = f"{images[0]:,}" if len(images) == 1 else f"{images[0]:,} to {images[-1]:,}"
    return (
        f"change in {METRICS[metric][0]}, {views_text(budget)}, {count} unseen images: the line's "
        "policy − the column's own"
    )


def _head(target: TransferTarget) -> str:
    return target.name if target.own is not None else f"{target.name} (− CF)"


def _difference(study: Transfer, cell: TransferCell | None, metric: str) -> Interval | None:
    shown = None if cell is None else study.shown(cell)
    return None if shown is None else shown[metric]


def _clear(study: Transfer, cell: TransferCell | None, metric: str) -> bool:
    """Whether the interval of the difference leaves zero out."""
    one = _difference(study, cell, metric)
    return one is not None and (one.low > 0 or one.high < 0)


def _text(study: Transfer, cell: TransferCell | None, metric: str, intervals: bool) -> str:
    if cell is None:
        return ""
    _, scale, digits = METRICS[metric]
    one = _difference(study, cell, metric)
    if one is None:
        text = f"{study.standing(cell)} {scale * cell.metrics[metric].mean:.{digits}f}".strip()
    else:
        text = f"{scale * one.estimate:+.{digits}f}"
        if intervals:
            text += f" [{scale * one.low:+.{digits}f}, {scale * one.high:+.{digits}f}]"
    return text.replace("-", "−")


def _latex_row(study: Transfer, source: str, budget: int) -> str:
    label = source if source in study.policies else SHORT_NAMES.get(source, source)
    texts = []
    for target in study.targets:
        cell = study.cell(source, target.name, budget)
        one = _difference(study, cell, "cll")
        if one is not None:
            text = f"${one.estimate:+.4f}$"
            texts.append(rf"\textbf{{{text}}}" if _clear(study, cell, "cll") else text)
        else:
            texts.append("" if cell is None else f"(${cell.metrics['cll'].mean:.4f}$)")
    return " & ".join([tex(label), *texts]) + r" \\"


def _measured(cell: TransferCell) -> list[str]:
    found = [cell.metrics[name] for name in METRICS_OF_A_ROW]
    return [text for one in found for text in (f"{one.mean:.8g}", f"{one.deviation:.4g}")]


def _triple(one: Interval | None) -> tuple[str, str, str]:
    if one is None:
        return "", "", ""
    return f"{one.estimate:.6g}", f"{one.low:.6g}", f"{one.high:.6g}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
