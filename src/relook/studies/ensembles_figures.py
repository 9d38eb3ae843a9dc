"""Figures of a study of ensembles, and two that a comparison's rows can be drawn with as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from relook.errors import MissingExtraError, RelookError
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison import Measured
from relook.report.figures import (
    HEIGHT,
    WIDTH,
    Drawing,
    house_style,
    legend_rows,
    panel,
    save_drawing,
)
from relook.report.series import Curve, Point, shown_range
from relook.report.style import FAINT, PAPER, POLICY_COLOR, MethodStyle, method_styles, shorten
from relook.studies.ensembles_result import ENSEMBLE, PER_MEMBER, SINGLE, Ensembles
from relook.studies.policy_family import family_look, family_styles

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

LABELS = {
    "cll": ("Calibrated log-likelihood", 1.0),
    "accuracy": ("Accuracy (%)", 100.0),
    "log_likelihood": ("Log-likelihood", 1.0),
}
_WAYS = (PER_MEMBER, ENSEMBLE, SINGLE)  # the order of the legend
_PANEL = 3.1  # inches


class Scored(Protocol):
    """A method at a budget: a row of an ensemble's study or of a comparison."""

    @property
    def method(self) -> str:
        """Its name in the table of baselines, "gps", or a way to search for an ensemble."""

    @property
    def label(self) -> str:
        """What figures call it."""

    @property
    def budget(self) -> int:
        """The most views that it may take."""

    @property
    def views(self) -> int:
        """The views that it takes."""

    @property
    def metrics(self) -> Mapping[str, Measured]:
        """Its metrics, means and deviations."""


def ensembles_drawings(study: Ensembles) -> list[Drawing]:
    """Draw the ensemble's metrics against views, CF against Tr, and GPS against CF."""
    together, alone = study.together(), study.alone()
    alone = [replace(row, metrics=_means(row.metrics)) for row in alone]
    count = len(study.members)
    drawn = [
        views_drawing(
            together,
            name=f"ensembles_{metric}",
            title=f"{LABELS[metric][0]} of {count} members against views",
            metric=metric,
            across=f"views for each of the {count} members",
        )
        for metric in ("cll", "accuracy")
    ]
    if {"cf", "mtrain"} <= {row.method for row in alone}:
        drawn.append(crops_against_training_drawing(alone))
    if "cf" in {row.method for row in alone}:
        ensemble = [
            replace(row, method=POLICY_METHOD) if row.method == ENSEMBLE else row
            for row in together
        ]
        panels = {"one member": alone, f"{count} members together": ensemble}
        drawn.append(policy_against_crops_drawing(panels, across="views a member"))
    return drawn


def _means(metrics: Mapping[str, Measured]) -> dict[str, Measured]:
    """Leave deviations over members out: members differ by more than methods do."""
    return {name: Measured(one.mean, 0.0) for name, one in metrics.items()}


def save_ensembles_figures(study: Ensembles, directory: str | Path) -> list[Path]:
    """Write the study's figures as SVG and PNG; returns the files."""
    drawn = ensembles_drawings(study)
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def views_drawing(
    rows: Sequence[Scored],
    *,
    name: str,
    title: str,
    metric: str = "cll",
    methods: Sequence[str] | None = None,
    everything: bool = False,
    across: str = "views (model passes an image)",
) -> Drawing:
    """Draw a metric of methods (default: all) against views.

    Methods far below the plain image leave the figure, unless `everything` is to be shown.
    """
    curves = _curves(rows, metric, methods)
    label, scale = LABELS[metric]
    with house_style():
        figure, axes = panel(HEIGHT + 0.24 * legend_rows(curves))
        _draw(axes, curves, scale, everything)
        axes.set_xlabel(across)
        axes.set_ylabel(label)
        _legend(figure, curves, 2)
    return Drawing(name, title, _words({"": curves}, label, scale), figure)


def crops_against_training_drawing(
    rows: Sequence[Scored], metric: str = "accuracy", name: str = "train_vs_clean"
) -> Drawing:
    """Draw random crops against the training's RandAugment: the paper's figure of that name."""
    title = "Random crops against the augmentation of the training"
    return views_drawing(
        rows,
        name=name,
        title=title,
        metric=metric,
        methods=("plain", "cf", "mtrain"),
        everything=True,
    )


def policy_against_crops_drawing(
    panels: Mapping[str, Sequence[Scored]],
    metric: str = "cll",
    name: str = "policy_vs_crops",
    across: str = "views",
) -> Drawing:
    """Draw GPS against random crops, a panel a network: the paper's figure for vanilla training."""
    if not panels:
        raise RelookError("expected at least one network to draw, got none")
    label, scale = LABELS[metric]
    drawn = {
        title: _curves(rows, metric, ("plain", "cf", POLICY_METHOD))
        for title, rows in panels.items()
    }
    with house_style():
        width = max(WIDTH, _PANEL * len(panels))
        figure = Figure((width, HEIGHT + 0.24), layout="constrained")
        for axes, (title, curves) in zip(
            figure.subplots(1, len(panels), squeeze=False)[0], drawn.items(), strict=True
        ):
            axes.grid(axis="y")
            axes.tick_params(length=0)
            axes.spines["left"].set_visible(False)
            axes.set_title(shorten(title, 28), loc="left")
            axes.set_xlabel(across)
            _draw(axes, curves, scale, everything=True)
        figure.axes[0].set_ylabel(label)
        _legend(figure, max(drawn.values(), key=len), 2 if len(panels) == 1 else 3)
    words = _words(drawn, label, scale)
    return Drawing(name, f"{label}: learned policy against random crops", words, figure)


def _curves(
    rows: Sequence[Scored], metric: str, methods: Sequence[str] | None
) -> tuple[Curve, ...]:
    """Return each method's points in order of views; of equal views those of the largest budget."""
    kept = [row for row in rows if methods is None or row.method in methods]
    if not kept:
        raise RelookError(f"expected rows of {', '.join(methods or ('any method',))}, got none")
    found = []
    for method, style in _styles(kept).items():
        points: dict[int, Point] = {}
        for row in sorted(kept, key=lambda row: (row.views, row.budget)):
            if row.method == method:
                one = row.metrics[metric]
                low, high = one.mean - one.deviation, one.mean + one.deviation
                points[row.views] = Point(row.views, one.mean, low, high)
        found.append(Curve(style, tuple(points.values())))
    return tuple(found)


def _styles(rows: Sequence[Scored]) -> dict[str, MethodStyle]:
    """Return the house's styles; the ways to search for an ensemble share the policy's colour."""
    labels = {
        way: next(row.label for row in rows if row.method == way)
        for way in _WAYS
        if any(row.method == way for row in rows)
    }
    return family_styles(labels) | method_styles([row for row in rows if row.method not in _WAYS])


def _draw(axes: Axes, curves: Sequence[Curve], scale: float, everything: bool) -> None:
    """Draw the curves, and name those that leave the axes."""
    for curve in reversed(curves):
        values = [scale * point.value for point in curve.points]
        views = [point.views for point in curve.points]
        style = curve.style
        if style.is_plain:
            axes.axhline(values[0], color=style.color, lw=1.4, dashes=style.dashes, zorder=2)
            continue
        low = [scale * point.low for point in curve.points]
        high = [scale * point.high for point in curve.points]
        if low != high:
            axes.fill_between(views, low, high, color=style.color, alpha=0.12, lw=0, zorder=1)
        axes.plot(
            views, values, zorder=4 if style.color == POLICY_COLOR else 3, **family_look(style)
        )
    shown = shown_range(curves, everything)
    axes.set_ylim(shown.low * scale, shown.high * scale)
    _views_axis(axes, curves)
    if shown.leaving:
        short = [name.partition("(")[2].rstrip(")") or name for name in shown.leaving]
        text = f"partly below: {', '.join(short)}"
        box = {"facecolor": PAPER, "edgecolor": "none", "alpha": 0.85, "pad": 1.5}
        axes.text(
            0.99,
            0.02,
            text,
            transform=axes.transAxes,
            ha="right",
            color=FAINT,
            fontsize=9,
            bbox=box,
            zorder=5,
        ).set_in_layout(False)  # a long list of names must not press the axes flat


def _views_axis(axes: Axes, curves: Sequence[Curve]) -> None:
    spent = sorted({p.views for curve in curves if not curve.style.is_plain for p in curve.points})
    ticks = [spent[-1]]
    for tick in reversed(spent):  # labels need room on the logarithmic axis
        if ticks[-1] >= 1.4 * tick:
            ticks.append(tick)
    axes.set_xscale("log")
    axes.set_xlim(0.9 * spent[0], 1.12 * spent[-1])
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))


def _legend(figure: Figure, curves: Sequence[Curve], columns: int) -> None:
    handles = [Line2D([], [], label=one.style.label, **family_look(one.style)) for one in curves]
    figure.legend(
        handles=handles, loc="outside lower left", ncols=columns, frameon=False, fontsize=9.5
    )


def _words(panels: Mapping[str, Sequence[Curve]], label: str, scale: float) -> str:
    words = []
    for title, curves in panels.items():
        for curve in curves:
            first, last = curve.points[0], curve.points[-1]
            text = f"{curve.style.label} {scale * first.value:.4g} ({first.views})"
            if last is not first:
                text += f" to {scale * last.value:.4g} ({last.views})"
            words.append(f"{title}: {text}" if title else text)
    return f"{label} at the fewest and most views: " + "; ".join(words) + "."
