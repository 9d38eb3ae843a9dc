"""Figures of an early exit: what it reaches against the mean number of views."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relook.deploy.early_exit.report import ExitPoint, ExitReport
from relook.errors import MissingExtraError
from relook.report.figures import (
    HEIGHT,
    Drawing,
    finish,
    house_style,
    line_look,
    panel,
    save_drawing,
)
from relook.report.style import INK, MethodStyle, method_styles

try:
    from matplotlib.axes import Axes
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_TICKS = (1, 2, 3, 5, 10, 20, 50, 100)
_MOST_MARKERS = 25


def early_exit_drawings(report: ExitReport) -> list[Drawing]:
    """Draw cLL and accuracy against the mean number of views, early exit beside fixed budgets."""
    with house_style():
        return [
            _drawing(report, "cll", "Calibrated log-likelihood", 1.0),
            _drawing(report, "accuracy", "Accuracy (%)", 100.0),
        ]


def save_early_exit_figures(report: ExitReport, directory: str | Path) -> list[Path]:
    """Write the figures as SVG and PNG; returns the files."""
    drawn = early_exit_drawings(report)
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def _drawing(report: ExitReport, metric: str, label: str, scale: float) -> Drawing:
    exiting, fixed = _styles()
    figure, axes = panel(HEIGHT + 0.24)
    for style, points in ((fixed, report.fixed), (exiting, report.curve)):
        look = {**line_look(style), **({"marker": ""} if len(points) > _MOST_MARKERS else {})}
        axes.plot(
            [point.views for point in points],
            [scale * getattr(point, metric) for point in points],
            zorder=4 if style is exiting else 3,
            **look,
        )
    own = scale * getattr(report.own, metric)
    axes.plot([report.own.views], [own], "D", color=exiting.color, ms=9, mec=INK, mew=1.2, zorder=5)
    axes.set_title(
        f"◆ {report.rule.target}: {report.own.views:.2f} views", loc="left", fontsize=9.5
    )
    _views_axis(axes, report.rule.views)
    axes.set_ylabel(label)
    finish(figure, axes, [exiting, fixed], True)
    words = (
        f"{_words('early exit', report.curve, metric, scale)}; "
        f"{_words('fixed', report.fixed, metric, scale)}; for {report.rule.target}: "
        f"{report.own.views:.2f} views, {own:.4g}."
    )
    return Drawing(f"early_exit_{metric}", f"{label} against mean views", words, figure)


def _styles() -> tuple[MethodStyle, MethodStyle]:
    """Return the looks of early exit, which is the policy's, and of fixed budgets."""
    rows = [
        MethodStyle("gps", "early exit", ""),
        MethodStyle("fixed", "the same number for every image", ""),
    ]
    styles = method_styles(rows)
    return styles["gps"], styles["fixed"]


def _views_axis(axes: Axes, most: int) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.93, 1.1 * most)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in _TICKS if tick <= most]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.set_xlabel("mean number of views (model passes an image)")


def _words(name: str, points: Sequence[ExitPoint], metric: str, scale: float) -> str:
    told = ", ".join(
        f"{scale * getattr(point, metric):.4g} at {point.views:.3g}" for point in points
    )
    return f"{name}: {told}"
