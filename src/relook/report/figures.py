"""The report's figures with matplotlib, as SVG for the page or as files.

Every figure is drawn at phone width, so that its text is readable on a phone without zooming; a
page or a paper puts two side by side.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from relook.errors import MissingExtraError
from relook.evaluation.comparison import Comparison, ReliabilityBin
from relook.evaluation.frontier import frontier
from relook.foundation.wording import views_text
from relook.io.files import write_bytes_atomic
from relook.numerics.metrics import Selective
from relook.policy.transform_counts import TransformUse
from relook.report.html import render
from relook.report.metrics import metric_of
from relook.report.series import Curve, curves, shown_range
from relook.report.style import (
    FAINT,
    GRID,
    INK,
    PAGE_VARIABLES,
    PAPER,
    PLAIN_COLOR,
    POLICY_COLOR,
    MethodStyle,
    method_styles,
)

try:
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

WIDTH, HEIGHT = 5.3, 3.7  # inches of 72 units: 382 × 266 on the page
_RC: dict[str, Any] = {
    "svg.hashsalt": "relook",
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "text.color": INK,
    "axes.labelcolor": FAINT,
    "axes.edgecolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "text.parse_math": False,  # labels come from files
    "axes.unicode_minus": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
VIEWS_LABEL = "views (model passes per image)"
_BOTH = (
    MethodStyle("policy", "policy", POLICY_COLOR),
    MethodStyle("plain", "plain image", PLAIN_COLOR),
)
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True)
class Drawing:
    """A figure with its name, which is also its file's, and a description for screen readers."""

    name: str
    title: str
    description: str
    figure: Figure


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in our own style, whatever the user's matplotlib settings are."""
    with mpl.rc_context(), warnings.catch_warnings():
        # A label may have letters that our font lacks; the browser's fonts will have them.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        mpl.rcdefaults()
        parameters: Any = mpl.rcParams  # typed by name in some versions of matplotlib
        parameters.update(_RC)
        yield


def comparison_drawings(comparison: Comparison, *, legend: bool) -> list[Drawing]:
    """Draw all figures of a comparison; `legend` puts the methods' names into them."""
    comparison = comparison.learned_averages or comparison
    with house_style():
        drawings = (
            _metric_drawing(comparison, "cll", legend),
            _metric_drawing(comparison, "accuracy", legend),
            _frontier_drawing(comparison, legend),
            _metric_drawing(comparison, "temperature", legend),
            _reliability_drawing(comparison, False, legend),
            _reliability_drawing(comparison, True, legend),
            _selective_drawing(comparison, legend),
        )
    return [drawing for drawing in drawings if drawing is not None]


def transforms_drawing(uses: Sequence[TransformUse]) -> Drawing:
    """Draw how often each transform is used and its mean magnitude."""
    with house_style():
        figure = Figure((WIDTH, 0.75 + 0.27 * len(uses)), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        names = [use.transform for use in uses]
        counts = [use.count for use in uses]
        _bars(left, names, counts, [str(count) for count in counts], "times used")
        magnitudes = [use.mean_magnitude if use.has_magnitude else 0.0 for use in uses]
        _bars(right, names, magnitudes, [use.magnitude_text for use in uses], "mean magnitude")
        left.invert_yaxis()
    words = [f"{use.transform} {use.count} times, magnitude {use.magnitude_text}" for use in uses]
    return Drawing("transforms", "Transforms of the policy", "; ".join(words) + ".", figure)


def trace_drawing(scores: Sequence[float]) -> Drawing:
    """Draw the score that each step of the search reached."""
    with house_style():
        figure, axes = panel()
        axes.plot(range(1, len(scores) + 1), scores, color=POLICY_COLOR, lw=2, marker="o", ms=3.5)
        axes.set_xlabel("entries of the policy")
        axes.set_ylabel("score on the search images")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    ends = f"{scores[0]:.4f} with 1 entry to {scores[-1]:.4f} with {len(scores)}"
    words = f"The score goes from {ends}."
    return Drawing("search", "The search, step by step", words, figure)


def inline_svg(drawing: Drawing) -> Markup:
    """Return the figure as SVG for the page: its colours follow the theme, its text is text."""
    buffer = io.StringIO()
    with house_style(), mpl.rc_context({"svg.fonttype": "none"}):
        drawing.figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = re.sub(r"<(metadata|style).*?</\1>", "", buffer.getvalue(), flags=re.S)
    for before in (' id="', 'href="#', "url(#"):
        text = text.replace(before, f"{before}figure-{drawing.name}-")
    for color, variable in PAGE_VARIABLES.items():
        text = text.replace(color, f"var({variable}, {color})")
    text = text.replace("font-family: 'DejaVu Sans'; ", "")
    head = re.search(r'<svg[^>]* viewBox="([^"]*)"[^>]*>', text)
    if head is None:
        raise ValueError("expected an SVG with a viewBox from matplotlib, got none")
    return render("figure.svg", drawing=drawing, view_box=head[1], drawn=text[head.end() :])


def save_drawing(drawing: Drawing, directory: Path) -> list[Path]:
    """Write the figure as SVG (text as outlines) and as PNG, the same bytes every time."""
    paths = []
    for kind, options in (
        ("svg", {"metadata": {"Date": None, "Creator": None}}),
        ("png", {"metadata": {"Software": None}, "dpi": 200, "facecolor": "white"}),
    ):
        buffer = io.BytesIO()
        with house_style():
            drawing.figure.savefig(buffer, format=kind, **options)
        paths.append(directory / f"{drawing.name}.{kind}")
        write_bytes_atomic(paths[-1], buffer.getvalue())
    return paths


def panel(height: float = HEIGHT) -> tuple[Figure, Axes]:
    """Return an empty figure of phone width."""
    figure = Figure((WIDTH, height), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(axis="y")
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    return figure, axes


def _metric_drawing(comparison: Comparison, metric: str, legend: bool) -> Drawing | None:
    label, scale = metric_of(metric).title, metric_of(metric).scale
    drawn = curves(comparison, metric)
    if not drawn:
        return None
    figure, axes = panel(HEIGHT + 0.24 * legend_rows(drawn) * legend)
    for curve in reversed(drawn):  # the policy last, on top
        _draw_curve(axes, curve, scale)
    shown = shown_range(drawn, everything=metric == "temperature")
    axes.set_ylim(shown.low * scale, shown.high * scale)
    largest = max((*comparison.budgets, *(row.views for row in comparison.rows)))
    log_axis(axes, sorted({1, *comparison.budgets}), (0.9, largest * 1.12), VIEWS_LABEL)
    axes.set_ylabel(label)
    finish(figure, axes, [curve.style for curve in drawn], legend)
    ends = "; ".join(curve_words(curve, scale) for curve in drawn)
    words = f"{label} by method, at its fewest and most views: {ends}."
    return Drawing(metric, f"{label} against views", words, figure)


def _draw_curve(axes: Axes, curve: Curve, scale: float) -> None:
    style = curve.style
    if style.is_plain and len(curve.points) == 1:
        level_line(axes, curve, scale)
        return
    views, values, low, high = scaled(curve, scale)
    strength = 0.2 if style.is_policy else 0.09
    order = 4.0 if style.is_policy else 3.0
    if len(values) > 1:
        axes.fill_between(views, low, high, color=style.color, alpha=strength, lw=0, zorder=1)
    elif high[0] > low[0]:
        axes.vlines(views, low, high, color=style.color, alpha=0.45, lw=1.2, zorder=order)
    axes.plot(views, values, zorder=order, **line_look(style))


def level_line(axes: Axes, curve: Curve, scale: float) -> None:
    """Draw a level line for a value that is the same with any number of views."""
    value, style = curve.points[0].value * scale, curve.style
    axes.axhline(value, color=style.color, lw=1.4, dashes=style.dashes, zorder=2)


def scaled(curve: Curve, scale: float) -> tuple[list[float], ...]:
    """Return a curve's views, values, and the lower and upper ends of its band."""
    points = [
        (one.views, one.value * scale, one.low * scale, one.high * scale) for one in curve.points
    ]
    return tuple(map(list, zip(*points, strict=True)))


def line_look(style: MethodStyle) -> dict[str, Any]:
    """Return how a method's line is drawn."""
    return {
        "color": style.color,
        "lw": 2.6 if style.is_policy else 1.3,
        "marker": style.marker or "o",
        "ms": 5.5 if style.is_policy else 5,
        "mec": PAPER,
        "mew": 0.6,
        **({"dashes": style.dashes} if style.dashes else {}),
    }


def log_axis(
    axes: Axes, ticks: Sequence[float], limits: tuple[float, float], label: str, unit: str = ""
) -> None:
    """Make the horizontal axis logarithmic, with a number and its unit at each of the ticks."""
    axes.set_xscale("log")
    axes.set_xlim(limits)
    numbers_at(axes, ticks, unit)
    axes.set_xlabel(label)


def numbers_at(axes: Axes, ticks: Sequence[float], unit: str = "") -> None:
    """Put numbers with their unit at these ticks of the horizontal axis, and no other ticks."""
    axes.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}{unit}"))


def _frontier_drawing(comparison: Comparison, legend: bool) -> Drawing:
    styles = method_styles(comparison.labels)
    figure, axes = panel(HEIGHT + 0.24 * legend_rows(list(styles)) * legend)
    best = frontier(comparison.rows)
    shown = shown_range(curves(comparison, "cll"))
    costs = [row.slowdown for row in best]
    scores = [row.metrics["cll"].mean for row in best]
    reach = [*costs, max(row.slowdown for row in comparison.rows)]
    axes.step(reach, [*scores, scores[-1]], where="post", color=FAINT, lw=1, zorder=2)
    for row in comparison.rows:
        style = styles[row.method]
        look = {**line_look(style), "lw": 0, "alpha": 1.0 if row in best else 0.45}
        look.pop("dashes", None)
        axes.plot([row.slowdown], [row.metrics["cll"].mean], zorder=3 + style.is_policy, **look)
    ticks = [tick for tick in STEPS if tick <= reach[-1]]
    log_axis(axes, ticks, (0.85, reach[-1] * 1.2), "measured time, one plain pass = 1×", "×")
    axes.set_ylim(shown.low, shown.high)
    axes.set_ylabel(metric_of("cll").title)
    verdict = comparison.verdict
    wanted = verdict.recommended_method, verdict.recommended_views
    chosen = next((row for row in comparison.rows if (row.method, row.views) == wanted), None)
    if chosen is not None:
        place = (chosen.slowdown, chosen.metrics["cll"].mean)
        axes.plot(*place, "o", ms=13, mfc="none", mec=INK, mew=1.2, zorder=5)
        how: dict[str, Any] = {"textcoords": "offset points", "ha": "left", "va": "top"}
        axes.annotate("recommended", place, (9, -6), fontsize=10, **how)
    finish(figure, axes, list(styles.values()), legend)
    words = "; ".join(
        f"{styles[row.method].label} with {views_text(row.views)} costs {row.slowdown:.1f} times "
        f"one pass and reaches {row.metrics['cll'].mean:.4f}"
        for row in best
    )
    return Drawing("frontier", "The frontier of cLL against measured cost", words + ".", figure)


def _reliability_drawing(comparison: Comparison, calibrated: bool, legend: bool) -> Drawing | None:
    ending = "_calibrated" if calibrated else ""
    bins = {
        name: [one for one in comparison.reliability.get(name + ending, ()) if one.share > 0]
        for name in ("plain", "policy")
    }
    if not any(bins.values()):
        return None
    figure, axes = panel(4.6 + 0.3 * legend)
    axes.plot([0, 1], [0, 1], color=FAINT, lw=1, dashes=(2, 2), zorder=1)
    for style in reversed(_BOTH):
        _draw_bins(axes, bins[style.method], style.color)
    axes.set(xlim=(-0.02, 1.03), ylim=(-0.02, 1.03), aspect="equal")
    axes.xaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    axes.set_xlabel("confidence")
    axes.set_ylabel("share that is right")
    finish(figure, axes, _BOTH, legend)
    when = "after" if calibrated else "before"
    words = "; ".join(f"{name}: {_gap_words(bins[name])}" for name in bins if bins[name])
    return Drawing(f"reliability_{when}", f"Reliability {when} calibration", words + ".", figure)


def _selective_drawing(comparison: Comparison, legend: bool) -> Drawing | None:
    """Draw the share of wrong answers against the share of images that are answered."""
    if comparison.selective is None:
        return None
    figure, axes = panel(HEIGHT + 0.3 * legend)
    words = []
    for style in reversed(_BOTH):
        one: Selective = getattr(comparison.selective, style.method)
        share = [100 * (place + 1) / len(one.curve) for place in range(len(one.curve))]
        axes.plot(share, [100 * risk for risk in one.curve], color=style.color, lw=2)
        words += [f"{style.label}, {at.share:.0%}: {at.accuracy:.1%} right" for at in one.at]
    axes.set_xlabel("images that are answered, the surest first (%)")
    axes.set_ylabel("wrong answers (%)")
    axes.set_ylim(bottom=0)
    finish(figure, axes, _BOTH, legend)
    return Drawing("selective", "Risk and coverage", "; ".join(words) + ".", figure)


def _draw_bins(axes: Axes, bins: Sequence[ReliabilityBin], color: str) -> None:
    confidence = [one.confidence for one in bins]
    accuracy = [one.accuracy for one in bins]
    largest = max((one.share for one in bins), default=1.0)
    sizes = [14 + 90 * one.share / largest for one in bins]
    axes.plot(confidence, accuracy, color=color, lw=1.4, zorder=2)
    axes.scatter(confidence, accuracy, sizes, color=color, ec=PAPER, lw=0.8, zorder=3)


def _gap_words(bins: Sequence[ReliabilityBin]) -> str:
    most = max(bins, key=lambda one: one.share)
    return (
        f"in the fullest bin ({most.share:.0%} of the images) the confidence is "
        f"{most.confidence:.3f} and {most.accuracy:.1%} are right"
    )


def _bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], labels: Sequence[str], title: str
) -> None:
    bars = axes.barh(names, values, color=POLICY_COLOR, height=0.62)
    axes.bar_label(bars, labels, padding=3, fontsize=10)
    axes.set_title(title, loc="left", color=FAINT)
    axes.set_xlim(0, 1.22 * max(values, default=1.0) or 1.0)
    axes.xaxis.set_visible(False)
    axes.spines[["bottom", "left"]].set_visible(False)
    axes.tick_params(length=0, labelcolor=INK)


def finish(figure: Figure, axes: Axes, styles: Sequence[MethodStyle], legend: bool) -> None:
    """Set the ticks, and put the legend below the figure."""
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if legend:
        handles = [Line2D([], [], label=style.label, **line_look(style)) for style in styles]
        legend_below(figure, handles)


def legend_below(figure: Figure, handles: Sequence[Any], columns: int = 2) -> None:
    """Put a legend below the figure."""
    look: dict[str, Any] = {"loc": "outside lower left", "frameon": False, "fontsize": 9.5}
    figure.legend(handles=list(handles), ncols=columns, **look)


def legend_rows(names: Sequence[object]) -> int:
    """Return the number of text lines that a legend takes."""
    return -(-len(names) // 2)


def curve_words(curve: Curve, scale: float) -> str:
    """Return a curve's first and last values, with their views, in words."""
    first, last = curve.points[0], curve.points[-1]
    words = f"{curve.style.label} {first.value * scale:.4g} ({first.views:g})"
    if last is not first:
        words += f" to {last.value * scale:.4g} ({last.views:g})"
    return words
