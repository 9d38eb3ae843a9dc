"""Figures of an early exit: cLL and accuracy against the mean number of views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relook.deploy.early_exit.report import ExitPoint, ExitReport
from relook.evaluation.baselines import POLICY_METHOD
from relook.report.figures import (
    HEIGHT,
    VIEWS_LABEL,
    Drawing,
    finish,
    house_style,
    line_look,
    log_axis,
    panel,
    save_drawing,
)
from relook.report.metrics import metric_of
from relook.report.style import INK, method_styles

_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
_MOST_MARKERS = 25


def early_exit_drawings(report: ExitReport) -> list[Drawing]:
    """Draw cLL and accuracy against the mean number of views, early exit against fixed budgets."""
    with house_style():
        return [_drawing(report, metric) for metric in ("cll", "accuracy")]


def save_early_exit_figures(report: ExitReport, directory: str | Path) -> list[Path]:
    """Write the figures as SVG and PNG; returns the files."""
    drawn = early_exit_drawings(report)
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def _drawing(report: ExitReport, metric: str) -> Drawing:
    label, scale = metric_of(metric).title, metric_of(metric).scale
    # Early exit looks as the policy does.
    labels = {POLICY_METHOD: "early exit", "fixed": "the same number for every image"}
    exiting, fixed = method_styles(labels.items()).values()
    figure, axes = panel(HEIGHT + 0.24)
    for style, points in ((fixed, report.fixed), (exiting, report.curve)):
        look = {**line_look(style), "zorder": 4 if style is exiting else 3}
        look |= {"marker": ""} if len(points) > _MOST_MARKERS else {}
        values = [scale * getattr(point, metric) for point in points]
        axes.plot([point.views for point in points], values, **look)
    own = scale * getattr(report.own, metric)
    axes.plot([report.own.views], [own], "D", color=exiting.color, ms=9, mec=INK, mew=1.2, zorder=5)
    wanted = f"{report.rule.target}: {report.own.views:.2f} views"
    axes.set_title(f"◆ {wanted}", loc="left", fontsize=9.5)
    most = report.rule.views
    ticks = [tick for tick in _TICKS if tick <= most]
    log_axis(axes, ticks, (0.93, 1.1 * most), f"mean number of {VIEWS_LABEL}")
    axes.set_ylabel(label)
    finish(figure, axes, [exiting, fixed], True)

    def words_of(points: Sequence[ExitPoint]) -> str:
        return ", ".join(f"{scale * getattr(p, metric):.4g} at {p.views:.3g}" for p in points)

    curves = f"early exit: {words_of(report.curve)}; fixed: {words_of(report.fixed)}"
    words = f"{curves}; for {wanted}, {own:.4g}."
    return Drawing(f"early_exit_{metric}", f"{label} against mean views", words, figure)
