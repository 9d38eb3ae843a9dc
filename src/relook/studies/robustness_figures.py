"""Figures of a study of robustness: muCE against views, and the error under each corruption."""

from __future__ import annotations

from pathlib import Path

from relook.errors import MissingExtraError
from relook.foundation.wording import views_text
from relook.report.figures import (
    HEIGHT,
    WIDTH,
    Drawing,
    finish,
    house_style,
    legend_rows,
    line_look,
    panel,
    save_drawing,
)
from relook.report.style import INK, MethodStyle, method_styles
from relook.studies.robustness_result import MEAN, Robustness, ShiftRow

try:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_BAR = 0.11  # inches


def robustness_drawings(study: Robustness) -> list[Drawing]:
    """Draw a study: the mean error against views, and the corruptions one by one."""
    with house_style():
        return [_views_drawing(study), _corruptions_drawing(study)]


def save_robustness_figures(study: Robustness, directory: str | Path) -> list[Path]:
    """Write the study's figures as SVG and PNG; returns the files."""
    drawn = robustness_drawings(study)
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def _views_drawing(study: Robustness) -> Drawing:
    styles = method_styles(study.rows)
    label = "mCE" if study.normalised else "Mean error under corruption (%)"
    figure, axes = panel(HEIGHT + 0.24 * legend_rows(list(styles)))
    for style in reversed(styles.values()):
        own = [row for row in study.rows if row.method == style.method]
        values = [_mean(study, row) for row in own]
        if style.is_plain:
            axes.axhline(values[0], color=style.color, lw=1.4, dashes=style.dashes, zorder=2)
        else:
            axes.plot([row.views for row in own], values, zorder=3, **line_look(style))
    spent = [row.views for row in study.rows if row.method != "plain"]
    axes.set_xscale("log")
    axes.set_xlim(0.9 * min(spent), 1.12 * max(spent))
    axes.xaxis.set_major_locator(FixedLocator(study.budgets))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.set_xlabel("views (model passes an image)")
    axes.set_ylabel(label)
    finish(figure, axes, list(styles.values()), True)
    words = "; ".join(
        f"{styles[row.method].label} with {row.views} views {_mean(study, row):.4g}"
        for row in study.rows
    )
    return Drawing("robustness_views", f"{label} against views", words + ".", figure)


def _corruptions_drawing(study: Robustness) -> Drawing:
    rows = study.largest()
    styles = method_styles(rows)
    names = [*study.corruptions, MEAN]
    inches = 0.9 + len(names) * (_BAR * len(rows) + 0.12) + 0.24 * legend_rows(rows)
    figure = Figure((WIDTH, inches), layout="constrained")
    axes = figure.add_subplot()
    height = 0.8 / len(rows)
    for number, row in enumerate(rows):
        places = [i + (number - (len(rows) - 1) / 2) * height for i in range(len(names))]
        values = [100 * value for value in (*row.uce.values(), row.muce.mean)]
        axes.barh(places, values, height=0.9 * height, color=styles[row.method].color)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.axhline(len(names) - 1.5, color=INK, lw=0.8)
    axes.tick_params(length=0, labelcolor=INK)
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("error (%), mean over severities")
    shown = [_with_views(styles[row.method], row) for row in rows]
    figure.legend(
        handles=[axes.barh([0], [0], color=style.color, label=style.label) for style in shown],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=9.5,
    )
    words = "; ".join(
        f"{name}: "
        + ", ".join(f"{styles[row.method].label} {100 * row.uce[name]:.1f}" for row in rows)
        for name in study.corruptions
    )
    return Drawing("robustness_corruptions", "Error by corruption", words + ".", figure)


def _with_views(style: MethodStyle, row: ShiftRow) -> MethodStyle:
    return MethodStyle(style.method, f"{style.label}, {views_text(row.views)}", style.color)


def _mean(study: Robustness, row: ShiftRow) -> float:
    return row.mce if study.normalised else 100 * row.muce.mean
