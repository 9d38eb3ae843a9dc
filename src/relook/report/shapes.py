"""The figures of studies: curves, bars, dots and heat maps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relook.errors import MissingExtraError, RelookError
from relook.evaluation.baselines import POLICY_METHOD, label_of
from relook.evaluation.results import Result
from relook.report.figures import (
    HEIGHT,
    STEPS,
    VIEWS_LABEL,
    WIDTH,
    Drawing,
    curve_words,
    house_style,
    legend_below,
    legend_rows,
    level_line,
    line_look,
    numbers_at,
    panel,
    scaled,
)
from relook.report.metrics import metric_of
from relook.report.series import Curve, shown_range
from relook.report.style import (
    FAINT,
    INK,
    PAPER,
    POLICY_COLOR,
    MethodStyle,
    Polygon,
    method_styles,
    numbered,
    shorten,
)
from relook.report.tables import SHORT_NAMES

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_PANEL = (2.65, 2.25)  # inches of one of several panels
_BAR, _DOT = 0.12, 0.34  # inches
_FAMILY: tuple[tuple[tuple[float, ...], Polygon], ...] = (
    ((), ()),
    ((4.0, 1.4), ((-1, -1), (1, -1), (1, 1), (-1, 1))),
    ((1.2, 1.4), ((-1.1, -0.95), (1.1, -0.95), (0, 1.15))),
    ((6.0, 1.4, 1.2, 1.4), ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0))),
    ((2.4, 1.2), ((-1.1, 0.95), (1.1, 0.95), (0, -1.15))),
)
_CELL = 0.5  # inches of a line
_LONG = 12  # longer names, in letters, take two lines
_GAP = 0.18  # of a line, between the parts of a heat map
_SHADES = LinearSegmentedColormap.from_list("change", ["#3b3fa8", PAPER, POLICY_COLOR])
_STRONGEST = 0.6  # so that dark text stays readable on every shade

_ORDER = ("plain", "cf", "mgrid", "mtrain", "5c", "10c", "random", "d4", "flip", POLICY_METHOD)
METHODS = method_styles((method, label_of(method)) for method in _ORDER)
"""One style for each method, the same in all figures of a study."""


@dataclass(frozen=True)
class Ring:
    """A ring around a point of a curve, with a short text above it, or below."""

    place: tuple[float, float]
    text: str
    color: str
    below: bool = False


@dataclass(frozen=True)
class Panel:
    """A panel of curves; `everything` also shows those far below the others."""

    title: str
    label: str
    curves: tuple[Curve, ...]
    scale: float = 1.0
    everything: bool = True
    rings: tuple[Ring, ...] = ()


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: the change is its shade; without one it is framed."""

    text: str
    change: float | None = None
    bold: bool = False


def family_styles(labels: Mapping[str, str]) -> dict[str, MethodStyle]:
    """Return styles for several learned policies: one colour, different dashes and markers."""
    styles = {}
    for number, (name, label) in enumerate(labels.items()):
        dashes, marker = _FAMILY[number % len(_FAMILY)]
        styles[name] = MethodStyle(name, shorten(label), POLICY_COLOR, marker, dashes)
    return styles


def curves_drawing(
    name: str,
    title: str,
    rows: Sequence[Sequence[Panel]],
    *,
    across: str = VIEWS_LABEL,
    log: bool = True,
    legend: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> Drawing:
    """Draw panels of curves, a row of them for each metric; `legend` adds entries to it."""
    count = len(rows[0]) if rows else 0
    curves = [curve for row in rows for one in row for curve in one.curves]
    if not curves:
        raise RelookError(f"{title}: expected results to draw, got none")
    styles = {c.style.method: c.style for c in curves if c.style.label}
    bare = {} if log else {"marker": None}
    entries = [(style.label, {**_look(style), **bare}) for style in styles.values()]
    entries += [(label, dict(look)) for label, look in legend]
    alone, beside = count * len(rows) == 1, max(2, count)
    with house_style():
        if alone:
            figure, axes = panel(HEIGHT + 0.24 * legend_rows(entries))
            grid = [[axes]]
        else:
            inches = _PANEL[1] * len(rows) + 0.3 + 0.24 * -(-len(entries) // beside)
            figure = Figure((max(_PANEL[0] * count, WIDTH), inches), layout="constrained")
            grid = [list(line) for line in figure.subplots(len(rows), count, squeeze=False)]
        for line, own in zip(grid, rows, strict=True):
            for place, (axes, one) in enumerate(zip(line, own, strict=True)):
                _draw_panel(axes, one, log=log, small=not alone)
                axes.set_title(shorten(one.title) if line is grid[0] else "", loc="left")
                axes.set_title(_below(one), loc="right", fontsize=8.5, color=FAINT)
                axes.set_ylabel(one.label if place == 0 else "")
                axes.set_xlabel(across if line is grid[-1] else "")
        handles = [Line2D([], [], label=label, **look) for label, look in entries]
        legend_below(figure, handles, beside)
    words = " ".join(_words(one) for row in rows for one in row)
    return Drawing(name, title, words, figure)


def bars_drawing(
    name: str,
    title: str,
    categories: Sequence[str],
    panels: Mapping[str, Mapping[str, Sequence[float]]],
    styles: Mapping[str, MethodStyle],
    words: str,
    *,
    rule: bool = False,
) -> Drawing:
    """Draw bars by category, series by series, a panel for each measure.

    `panels` holds each measure's values by series; `rule` sets the last category apart.
    """
    names = list(styles)
    thick = 0.8 / max(len(names), 1)
    inches = 1.0 + (_BAR * len(names) + 0.13) * max(len(categories), 1) + 0.24 * legend_rows(names)
    with house_style():
        figure = Figure((WIDTH, inches), layout="constrained")
        grid = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (label, series) in zip(grid, panels.items(), strict=True):
            for number, one in enumerate(names):
                shift = (number - (len(names) - 1) / 2) * thick
                places = [place + shift for place in range(len(categories))]
                axes.barh(places, series[one], height=0.9 * thick, color=styles[one].color)
            _category_axes(axes, categories)
            axes.set_title(label, loc="left", color=FAINT)
            if rule:
                axes.axhline(len(categories) - 1.5, color=INK, lw=0.8)
        legend_below(figure, [Patch(color=one.color, label=one.label) for one in styles.values()])
    return Drawing(name, title, words, figure)


def dots_drawing(
    name: str, title: str, series: Mapping[str, Sequence[Result]], colors: Mapping[str, str]
) -> Drawing:
    """Draw a dot with its deviation for each series and metric, a panel per metric."""
    metrics = [one.metric for one in next(iter(series.values()))]
    with house_style():
        figure = Figure((WIDTH, 1.1 + _DOT * len(series)), layout="constrained")
        for column, axes in enumerate(
            figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        ):
            metric = metric_of(metrics[column])
            for place, (label, own) in enumerate(series.items()):
                one = own[column]
                axes.errorbar(
                    metric.scale * one.value,
                    place,
                    xerr=metric.scale * one.deviation or None,
                    fmt="o",
                    color=colors.get(label, "#3b3fa8"),
                    ms=6,
                    lw=1.6,
                    capsize=3,
                )
            _category_axes(axes, list(series))
            axes.margins(x=0.12)
            axes.set_xlabel(metric.title)
    words = "; ".join(
        f"{label}: "
        + ", ".join(f"{metric_of(r.metric).head} {metric_of(r.metric).text(r)}" for r in own)
        for label, own in series.items()
    )
    return Drawing(name, title, words + ".", figure)


def heat_drawing(
    name: str,
    title: str,
    lines: Sequence[str],
    heads: Sequence[str],
    cells: Mapping[tuple[int, int], HeatCell],
    *,
    largest: float,
    first: int,
    axes_labels: tuple[str, str],
    note: str,
    words: str,
) -> Drawing:
    """Draw a matrix of changes; `largest` has the strongest shade.

    There is a gap after `first` lines. The keys of `cells` are line and column.
    """
    below, left = [_wrapped(head) for head in heads], [_wrapped(line) for line in lines]
    longest = max(len(part) for head in below for part in head.split("\n"))
    column = min(1.3, max(0.9, 0.078 * longest + 0.12))
    margin = 0.5 + 0.082 * max(len(part) for line in left for part in line.split("\n"))
    width = max(WIDTH, margin + column * len(heads))
    heights = [place + _GAP * (place >= first) for place in range(len(lines))]
    with house_style():
        figure = Figure((width, 1.6 + _CELL * len(lines)), layout="constrained")
        axes = figure.add_subplot()
        for (y, x), cell in cells.items():
            _draw_cell(axes, cell, x, heights[y], largest, 10.5 if len(heads) < 4 else 10)
        axes.set_xlim(-0.5, len(heads) - 0.5)
        axes.set_ylim(heights[-1] + 0.5, -0.5)
        axes.set_xticks(range(len(heads)), below)
        axes.set_yticks(heights, left)
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel(axes_labels[0])
        axes.set_ylabel(axes_labels[1])
        axes.tick_params(length=0, labelcolor=INK, labelsize=9.5 if len(heads) > 3 else 10.5)
        axes.spines[:].set_visible(False)
        if longest > 16:
            for label in axes.get_xticklabels():
                label.set(rotation=25, ha="left", rotation_mode="anchor")
        figure.supxlabel(note, fontsize=9.5, color=FAINT)
    return Drawing(name, title, words, figure)


def named_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return styles for series that are not methods, by name."""
    return {name: numbered(i, name, shorten(name)) for i, name in enumerate(names)}


def _look(style: MethodStyle) -> dict[str, Any]:
    """Return how a line is drawn, thicker for learned policies."""
    thick = style.color == POLICY_COLOR and not style.is_policy
    return {**line_look(style), **({"lw": 2.2} if thick else {})}


def _draw_panel(axes: Axes, one: Panel, *, log: bool, small: bool) -> None:
    for curve in reversed(one.curves):
        _draw_curve(axes, curve, one.scale, log, small)
    for ring in one.rings:
        _draw_ring(axes, ring)
    own = [c for c in one.curves if not c.style.is_plain] or one.curves
    spent = sorted({point.views for curve in own for point in curve.points})
    if log:
        axes.set_xscale("log")
        axes.set_xlim(0.89 * spent[0], 1.13 * spent[-1])
        shown = shown_range(one.curves, one.everything)
        axes.set_ylim(shown.low * one.scale, shown.high * one.scale)
    else:
        axes.margins(y=0.22)  # room for the rings' texts
    numbers_at(axes, _ticks(spent, log))
    axes.yaxis.set_major_locator(MaxNLocator(4 if small else 5, steps=[1, 2, 2.5, 5, 10]))
    axes.grid(axis="y")
    axes.tick_params(length=0, labelsize=9.5 if small else 10.5)
    axes.spines["left"].set_visible(False)


def _draw_curve(axes: Axes, curve: Curve, scale: float, log: bool, small: bool) -> None:
    style = curve.style
    if style.is_plain and len(curve.points) == 1:
        level_line(axes, curve, scale)
        return
    policy = style.color == POLICY_COLOR
    views, values, low, high = scaled(curve, scale)
    if low != high and len(views) > 1 and (policy or not small or not log):
        axes.fill_between(views, low, high, color=style.color, alpha=0.15, lw=0, zorder=1)
    look = {**_look(style), **({"ms": 4.2 if policy else 3.8} if small else {})}
    if not log:
        look["marker"] = None
    elif len(views) > 8:
        look["markevery"] = [i for i, v in enumerate(views) if v in STEPS]
    axes.plot(views, values, zorder=4.0 if policy else 3.0, **look)


def _draw_ring(axes: Axes, ring: Ring) -> None:
    axes.plot(*ring.place, "o", ms=8, mfc="none", mec=ring.color, mew=1.8, zorder=4)
    axes.annotate(
        ring.text,
        ring.place,
        (0, -8 if ring.below else 8),
        textcoords="offset points",
        ha="center",
        va="top" if ring.below else "bottom",
        color=ring.color,
        fontsize=10,
        zorder=5,
    )


def _ticks(spent: Sequence[float], log: bool) -> list[float]:
    """Return the ticks of the horizontal axis, with enough room for their numbers."""
    if not log:
        return list(spent[::2] if len(spent) > 7 else spent)
    if len(spent) > 8:
        return [step for step in STEPS if step <= spent[-1]]
    ticks = [spent[-1]]
    for tick in reversed(spent):
        if ticks[-1] >= 1.4 * tick:
            ticks.append(tick)
    return ticks


def _below(one: Panel) -> str:
    """Return a note on the methods with all their points below the panel."""
    if one.everything:
        return ""
    low = shown_range(one.curves).low
    gone = [c.style for c in one.curves if max(point.value for point in c.points) < low]
    names = ", ".join(SHORT_NAMES.get(style.method, style.label) for style in gone)
    return f"below: {names}" if names else ""


def _words(one: Panel) -> str:
    parts = [curve_words(curve, one.scale) for curve in one.curves if curve.style.label]
    where = f"{one.title}: " if one.title else ""
    return f"{where}{'; '.join(parts)}. {one.label} from the first point to the last."


def _category_axes(axes: Axes, categories: Sequence[str]) -> None:
    axes.set_yticks(range(len(categories)), list(categories))
    axes.set_ylim(len(categories) - 0.45, -0.55)
    axes.grid(axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))


def _wrapped(name: str) -> str:
    """Split a long name at its last space, unless it has line breaks already."""
    short = "\n".join(shorten(part, 32) for part in name.split("\n"))
    first, _, last = short.rpartition(" ")
    return f"{first}\n{last}" if first and len(name) > _LONG and "\n" not in name else short


def _draw_cell(axes: Axes, cell: HeatCell, x: int, y: float, largest: float, size: float) -> None:
    shade = float(Normalize(-largest, largest, clip=True)(cell.change or 0.0))
    place = (x - 0.48, y - 0.46)
    color = _SHADES(0.5 + _STRONGEST * (shade - 0.5))
    axes.add_patch(Rectangle(place, 0.96, 0.92, facecolor=color, edgecolor="none"))
    framed = cell.change is None
    if framed:
        axes.add_patch(Rectangle(place, 0.96, 0.92, fill=False, edgecolor=FAINT, lw=0.8))
    axes.text(
        x,
        y,
        cell.text,
        ha="center",
        va="center",
        color=FAINT if framed else INK,
        fontsize=9 if framed else size,
        fontweight="bold" if cell.bold else "normal",
    )
