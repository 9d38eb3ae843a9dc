"""Figures of a study of transfer: the paper's heat map, and cLL against views on one target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from relook.errors import MissingExtraError
from relook.evaluation.baselines import label_of
from relook.foundation.wording import views_text
from relook.numerics.intervals import Interval
from relook.report.figures import (
    HEIGHT,
    WIDTH,
    Drawing,
    house_style,
    legend_rows,
    panel,
    save_drawing,
)
from relook.report.style import FAINT, INK, PAPER, POLICY_COLOR, MethodStyle, method_styles, shorten
from relook.report.tables import SHORT_NAMES
from relook.studies.policy_family import family_look, family_styles
from relook.studies.transfer_result import Transfer, TransferCell, TransferTarget

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_WORSE = "#3b3fa8"
_SHADES = LinearSegmentedColormap.from_list("transfer", [_WORSE, PAPER, POLICY_COLOR])
_STRONGEST = 0.6  # so that dark text stays readable on every shade
_LINE = 0.5  # inches a line of the matrix
_LONG = 12  # letters, above which a name takes two lines
_GAP = 0.18  # of a line, between policies and baselines


def transfer_drawings(study: Transfer) -> list[Drawing]:
    """Draw the heat map, and cLL against views for each target without a policy of its own."""
    alone = [target for target in study.targets if target.own is None]
    return [heat_map_drawing(study), *(views_drawing(study, target.name) for target in alone)]


def save_transfer_figures(study: Transfer, directory: str | Path) -> list[Path]:
    """Write the study's figures as SVG and PNG; returns the files."""
    drawn = transfer_drawings(study)
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def heat_map_drawing(study: Transfer, budget: int | None = None) -> Drawing:
    """Draw the change in cLL, a line a policy and a column a target (the paper's figure)."""
    budget = study.budgets[-1] if budget is None else budget
    sources = (*study.policies, *study.baselines)
    with house_style():
        figure = Figure(_inches(study, sources), layout="constrained")
        axes = figure.add_subplot()
        largest = _largest_change(study, budget)
        for line, source in enumerate(sources):
            for column, target in enumerate(study.targets):
                cell = study.cell(source, target.name, budget)
                if cell is not None:
                    _draw_cell(axes, study, cell, column, _height(study, line), largest)
        _matrix_axes(axes, study, sources)
        figure.supxlabel(
            f"cLL with {views_text(budget)}, line minus own policy; bold: 95 % interval without 0",
            fontsize=9.5,
            color=FAINT,
        )
    return Drawing("transfer", "Change in cLL under other policies", _words(study, budget), figure)


def views_drawing(study: Transfer, target: str) -> Drawing:
    """Draw cLL against views of every policy and baseline on one target."""
    number = [one.name for one in study.targets].index(target)
    own = study.targets[number].own
    styles = family_styles(
        {one: "its own policy" if one == own else f"policy of {one}" for one in study.policies}
    )
    styles |= method_styles([_Named(name, label_of(name)) for name in study.baselines])
    with house_style():
        figure, axes = panel(HEIGHT + 0.24 * legend_rows(list(styles)))
        for style in reversed(styles.values()):
            _draw_line(axes, study, target, style)
        _views_axes(axes, study)
        axes.set_title(shorten(target), loc="left")
        handles = [Line2D([], [], label=one.label, **family_look(one)) for one in styles.values()]
        figure.legend(
            handles=handles, loc="outside lower left", ncols=2, frameon=False, fontsize=9.5
        )
    words = "; ".join(
        f"{styles[cell.source].label} with {cell.views} views {cell.metrics['cll'].mean:.4f}"
        for cell in study.cells
        if cell.target == target
    )
    title = f"Calibrated log-likelihood against views on {target}"
    return Drawing(f"transfer_views_{number + 1}", title, words + ".", figure)


def _draw_line(axes: Axes, study: Transfer, target: str, style: MethodStyle) -> None:
    found = [study.cell(style.method, target, budget) for budget in study.budgets]
    cells = [cell for cell in found if cell is not None]
    values = [cell.metrics["cll"].mean for cell in cells]
    if style.is_plain:
        axes.axhline(values[0], color=style.color, lw=1.4, dashes=style.dashes, zorder=2)
    elif cells:
        axes.plot([cell.views for cell in cells], values, zorder=3, **family_look(style))


def _views_axes(axes: Axes, study: Transfer) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.9 * study.budgets[0], 1.12 * study.budgets[-1])
    axes.xaxis.set_major_locator(FixedLocator(study.budgets))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:g}"))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.set_xlabel("views (model passes an image)")
    axes.set_ylabel("Calibrated log-likelihood")


@dataclass(frozen=True)
class _Named:
    method: str
    label: str


def _largest_change(study: Transfer, budget: int) -> float:
    """Return the change of the strongest colour: policies decide, for baselines may be far off."""
    changes = [_difference(study, cell) for cell in study.foreign(budget)]
    return max((abs(one.estimate) for one in changes if one is not None), default=0.0) or 1e-3


def _inches(study: Transfer, sources: Sequence[str]) -> tuple[float, float]:
    """Return a width that holds the names: of targets above the columns, of policies beside."""
    heads = [line for target in study.targets for line in _head(target).split("\n")]
    column = min(1.3, max(0.9, 0.078 * max(map(len, heads)) + 0.12))
    beside = 0.5 + 0.082 * max(len(line) for s in sources for line in _wrapped(s).split("\n"))
    return max(WIDTH, beside + column * len(study.targets)), 1.6 + _LINE * len(sources)


def _wrapped(name: str) -> str:
    """Return a name on two lines, cut at its last space, if it is long."""
    first, _, last = shorten(name, 32).rpartition(" ")
    return f"{first}\n{last}" if first and len(name) > _LONG else shorten(name, 32)


def _difference(study: Transfer, cell: TransferCell) -> Interval | None:
    shown = study.shown(cell)
    return None if shown is None else shown["cll"]


def _height(study: Transfer, line: int) -> float:
    return line + _GAP * (line >= len(study.policies))


def _draw_cell(
    axes: Axes, study: Transfer, cell: TransferCell, x: int, y: float, largest: float
) -> None:
    one = _difference(study, cell)
    shade = Normalize(-largest, largest, clip=True)(0.0 if one is None else one.estimate)
    middle = 0.5 + _STRONGEST * (float(shade) - 0.5)
    place = (x - 0.48, y - 0.46)
    axes.add_patch(Rectangle(place, 0.96, 0.92, facecolor=_SHADES(middle), edgecolor="none"))
    if one is None:
        text = f"{study.standing(cell)}\n{cell.metrics['cll'].mean:.4f}".strip().replace("-", "−")
        axes.text(x, y, text, ha="center", va="center", color=FAINT, fontsize=9)
        axes.add_patch(Rectangle(place, 0.96, 0.92, fill=False, edgecolor=FAINT, lw=0.8))
        return
    clear = one.low > 0 or one.high < 0
    axes.text(
        x,
        y,
        f"{one.estimate:+.4f}".replace("-", "−"),
        ha="center",
        va="center",
        color=INK,
        fontsize=10.5 if len(study.targets) < 4 else 10,
        fontweight="bold" if clear else "normal",
    )


def _matrix_axes(axes: Axes, study: Transfer, sources: Sequence[str]) -> None:
    axes.set_xlim(-0.5, len(study.targets) - 0.5)
    axes.set_ylim(_height(study, len(sources)) - 0.5, -0.5)
    axes.set_xticks(range(len(study.targets)), [_head(target) for target in study.targets])
    labels = [_wrapped(s) if s in study.policies else SHORT_NAMES.get(s, s) for s in sources]
    axes.set_yticks([_height(study, line) for line in range(len(sources))], labels)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("evaluated on")
    axes.set_ylabel("policy of")
    axes.tick_params(length=0, labelcolor=INK, labelsize=9.5 if len(study.targets) > 3 else 10.5)
    axes.spines[:].set_visible(False)
    if max(len(line) for target in study.targets for line in _head(target).split("\n")) > 16:
        for label in axes.get_xticklabels():
            label.set(rotation=25, ha="left", rotation_mode="anchor")


def _head(target: TransferTarget) -> str:
    name = _wrapped(target.name)
    return name if target.own is not None else f"{name}\n(minus CF)"


def _words(study: Transfer, budget: int) -> str:
    words = []
    for cell in study.cells:
        one = _difference(study, cell)
        if cell.budget == budget and one is not None:
            words.append(f"policy of {cell.source} on {cell.target} {one}")
    return f"Differences in cLL with {views_text(budget)}: " + "; ".join(words) + "."
