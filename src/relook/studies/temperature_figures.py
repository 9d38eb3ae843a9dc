"""The figure of the optimal temperature against views, a line a model (the paper's appendix)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relook.errors import MissingExtraError, RelookError
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison import Comparison
from relook.report.figures import (
    HEIGHT,
    Drawing,
    house_style,
    legend_rows,
    line_look,
    panel,
    save_drawing,
)
from relook.report.series import by_views
from relook.report.style import INK, series_styles

try:
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

Points = list[tuple[int, float]]
"""Views and the temperature there."""

_DASHES = (3.0, 1.8)


def temperature_drawing(
    comparisons: Mapping[str, Comparison], method: str = POLICY_METHOD
) -> Drawing:
    """Draw the optimal temperature of each model's policy against the number of views.

    Solid: found by cross-validation on the comparison's images. Dashed: those that the policy
    carries, found on the images of its search.
    """
    found = {name: scored_temperatures(one, method) for name, one in comparisons.items()}
    if not any(found.values()):
        raise RelookError(f"expected comparisons with temperatures of {method!r}, got none")
    carried = {
        name: carried_temperatures(one, found[name]) if method == POLICY_METHOD else []
        for name, one in comparisons.items()
    }
    styles = series_styles(comparisons)
    with house_style():
        figure, axes = panel(HEIGHT + 0.24 * (legend_rows(list(styles)) + 1))
        for name, style in styles.items():
            axes.plot(*_columns(found[name]), zorder=3, **line_look(style))
            axes.plot(*_columns(carried[name]), color=style.color, dashes=_DASHES, zorder=2)
        ticks = sorted({1, *(budget for one in comparisons.values() for budget in one.budgets)})
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.set_xlabel("views (model passes an image)")
        axes.set_ylabel("optimal temperature")
        lines = [Line2D([], [], label=style.label, **line_look(style)) for style in styles.values()]
        if any(carried.values()):
            lines.append(Line2D([], [], color=INK, dashes=_DASHES, label="found by the search"))
        figure.legend(handles=lines, loc="outside lower left", ncols=2, frameon=False, fontsize=9.5)
    words = "; ".join(
        f"{name} from {points[0][1]:.3f} with {points[0][0]} to {points[-1][1]:.3f} with "
        f"{points[-1][0]} views"
        for name, points in found.items()
        if points
    )
    title = "Optimal temperature against views"
    return Drawing("temperature_views", title, words + ".", figure)


def save_temperature_figure(
    comparisons: Mapping[str, Comparison], directory: str | Path
) -> list[Path]:
    """Write the figure as SVG and PNG; returns the files."""
    return save_drawing(temperature_drawing(comparisons), Path(directory))


def _columns(points: Points) -> tuple[list[int], list[float]]:
    return [views for views, _ in points], [temperature for _, temperature in points]


def scored_temperatures(comparison: Comparison, method: str = POLICY_METHOD) -> Points:
    """Return a method's views and optimal temperatures, found on the comparison's images."""
    rows = by_views(comparison.rows, method, "temperature")
    return [(row.views, row.metrics["temperature"].mean) for row in rows]


def carried_temperatures(comparison: Comparison, points: Points) -> Points:
    """Return the policy's own temperatures at the same numbers of views, if it has any."""
    policy = comparison.policy
    if policy.temperatures is None:
        return []
    cut = [(views, policy.for_budget(views)) for views, _ in points]
    return [(views, part.temperatures[-1]) for views, part in cut if part.temperatures]
