"""The paper's figures with several models side by side: a metric against views, panel by panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relook.errors import MissingExtraError
from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.comparison import Comparison
from relook.report.figures import Drawing, house_style, line_look
from relook.report.series import Curve, Point, Range, curves, shown_range
from relook.report.style import FAINT, MethodStyle, method_styles, shorten
from relook.report.tables import SHORT_NAMES
from relook.studies.robustness_result import Robustness

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

METRICS = {"cll": ("Calibrated log-likelihood", 1.0), "accuracy": ("Accuracy (%)", 100.0)}
_PANEL = (2.65, 2.25)  # inches
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class _Named:
    method: str
    label: str


_ORDER = ("plain", "cf", "mgrid", "mtrain", "5c", "10c", "random", "d4", "flip", POLICY_METHOD)
_STYLES = method_styles([_Named(method, label_of(method)) for method in _ORDER])
"""One look for each method in all figures of a study, whichever methods a figure has."""


@dataclass(frozen=True)
class Panel:
    """One small picture: a model's curves for one metric."""

    title: str
    label: str
    scale: float
    curves: tuple[Curve, ...]
    budgets: tuple[int, ...]
    shown: Range


def methods_drawing(
    name: str,
    title: str,
    found: Mapping[str, Comparison],
    *,
    methods: Sequence[str] | None = None,
    metrics: Sequence[str] = ("cll", "accuracy"),
) -> Drawing:
    """Draw metrics against views: a column a model, a row a metric, a curve a method.

    `methods` limits the curves to some methods.
    """
    rows = []
    for metric in metrics:
        label, scale = METRICS[metric]
        row = []
        for model, comparison in found.items():
            drawn = tuple(
                Curve(_STYLES.get(curve.style.method, curve.style), curve.points)
                for curve in curves(comparison, metric)
                if methods is None or curve.style.method in methods
            )
            shown = shown_range(drawn, everything=methods is not None)
            row.append(Panel(model, label, scale, drawn, comparison.budgets, shown))
        rows.append(row)
    return _grid_drawing(name, title, rows)


def shift_drawing(name: str, title: str, found: Mapping[str, Robustness]) -> Drawing:
    """Draw the mean error under corruption against views, a panel a model."""
    row = []
    for model, study in found.items():
        drawn = tuple(
            Curve(_STYLES.get(method, style), tuple(_error_points(study, method)))
            for method, style in method_styles(study.rows).items()
        )
        label = "mCE" if study.normalised else "muCE (%)"
        scale = 1.0 if study.normalised else 100.0
        shown = shown_range(drawn, everything=True)
        row.append(Panel(model, label, scale, drawn, study.budgets, shown))
    return _grid_drawing(name, title, [row])


def _error_points(study: Robustness, method: str) -> list[Point]:
    points = []
    for row in study.rows:
        if row.method == method:
            value = row.mce if study.normalised else row.muce.mean
            spread = 0.0 if study.normalised else row.muce.deviation
            points.append(Point(row.views, value, value - spread, value + spread))
    return points


def _grid_drawing(name: str, title: str, rows: Sequence[Sequence[Panel]]) -> Drawing:
    count = len(rows[0])
    styles = {c.style.method: c.style for row in rows for panel in row for c in panel.curves}
    beside = max(2, count)
    legend = -(-len(styles) // beside)
    with house_style():
        width = max(_PANEL[0] * count, 5.3)
        figure = Figure((width, _PANEL[1] * len(rows) + 0.3 + 0.24 * legend), layout="constrained")
        grid = figure.subplots(len(rows), count, squeeze=False)
        for place, row in enumerate(rows):
            for column, panel in enumerate(row):
                axes = grid[place][column]
                _draw_panel(axes, panel)
                axes.set_title(shorten(panel.title) if place == 0 else "", loc="left")
                axes.set_title(_not_shown(panel), loc="right", fontsize=8.5, color=FAINT)
                axes.set_ylabel(panel.label if column == 0 else "")
                axes.set_xlabel("views" if place == len(rows) - 1 else "")
        figure.legend(
            handles=[Line2D([], [], label=s.label, **line_look(s)) for s in styles.values()],
            loc="outside lower left",
            ncols=beside,
            frameon=False,
            fontsize=9.5,
        )
    return Drawing(name, title, " ".join(_words(panel) for row in rows for panel in row), figure)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for curve in reversed(panel.curves):
        _draw_curve(axes, curve, panel.scale)
    views = [p.views for curve in panel.curves for p in curve.points if not curve.style.is_plain]
    axes.set_xscale("log")
    axes.set_xlim(0.88 * min(views, default=1), 1.14 * max(views, default=1))
    axes.set_ylim(panel.shown.low * panel.scale, panel.shown.high * panel.scale)
    axes.xaxis.set_major_locator(FixedLocator(_ticks(panel.budgets, max(views, default=1))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y")
    axes.tick_params(length=0, labelsize=9.5)
    axes.spines["left"].set_visible(False)


def _not_shown(panel: Panel) -> str:
    """Name the methods that lie below the panel with all their points."""
    low = panel.shown.low
    gone = [c.style for c in panel.curves if max(point.value for point in c.points) < low]
    names = ", ".join(SHORT_NAMES.get(style.method, style.label) for style in gone)
    return f"below: {names}" if names else ""


def _draw_curve(axes: Axes, curve: Curve, scale: float) -> None:
    style: MethodStyle = curve.style
    views = [point.views for point in curve.points]
    values = [point.value * scale for point in curve.points]
    if style.is_plain:
        axes.axhline(values[0], color=style.color, lw=1.4, dashes=style.dashes, zorder=2)
        return
    if style.is_policy and len(views) > 1:
        low, high = ([getattr(p, end) * scale for p in curve.points] for end in ("low", "high"))
        axes.fill_between(views, low, high, color=style.color, alpha=0.15, lw=0, zorder=1)
    order = 4.0 if style.is_policy else 3.0
    look = {**line_look(style), "ms": 4.2 if style.is_policy else 3.8}
    if len(views) > 8:
        look["markevery"] = [i for i, v in enumerate(views) if v in _STEPS]
    axes.plot(views, values, zorder=order, **look)


def _ticks(budgets: Sequence[int], largest: int) -> list[int]:
    ticks = [step for step in _STEPS if step <= largest]
    return ticks if len(ticks) > 1 else sorted({1, *budgets})


def _words(panel: Panel) -> str:
    parts = []
    for curve in panel.curves:
        last = curve.points[-1]
        parts.append(f"{curve.style.label} {last.value * panel.scale:.4g} ({last.views})")
    return f"{panel.title}, {panel.label} at the most views: {'; '.join(parts)}."
