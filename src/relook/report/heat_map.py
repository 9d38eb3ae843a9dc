"""A heat map of changes: lines and columns with names, a shade for each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relook.errors import MissingExtraError
from relook.report.figures import WIDTH, Drawing, house_style
from relook.report.style import (
    FAINT,
    INK,
    PAPER,
    POLICY_COLOR,
    shorten,
)

try:
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap, Normalize
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_CELL = 0.5  # inches of a line
_LONG = 12  # letters, above which a name takes two lines
_GAP = 0.18  # of a line, between the parts of a heat map
_SHADES = LinearSegmentedColormap.from_list("change", ["#3b3fa8", PAPER, POLICY_COLOR])
_STRONGEST = 0.6  # so that dark text stays readable on every shade


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: a change decides its shade; one without is framed."""

    text: str
    change: float | None = None
    bold: bool = False


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
    """Draw a matrix of changes; `largest` is that of the strongest shade.

    After `first` lines there is a gap. `cells` are by line and column.
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


def _wrapped(name: str) -> str:
    """Return a name on two lines, cut at its last space, if it is long; line breaks stay."""
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
