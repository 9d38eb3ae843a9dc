"""The figure of a study of objectives: held-out accuracy and cLL by what was searched with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relook.errors import MissingExtraError
from relook.report.figures import WIDTH, Drawing, house_style, save_drawing
from relook.report.style import INK, PLAIN_COLOR, POLICY_COLOR, shorten
from relook.studies.objectives_result import PLAIN, REFERENCE, Objectives
from relook.studies.study_tables import METRIC_FORMATS, measured_text

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_ROW = 0.34  # inches of a line
_SHOWN = {"accuracy": "accuracy (%)", "cll": "cLL"}
_OTHER = "#3b3fa8"


def objectives_drawings(studies: Mapping[str, Objectives]) -> list[Drawing]:
    """Draw a figure a model: a dot an objective with its deviation over runs, the plain image."""
    with house_style():
        return [_drawing(model, study, len(studies) > 1) for model, study in studies.items()]


def save_objectives_figures(studies: Mapping[str, Objectives], directory: str | Path) -> list[Path]:
    """Write the figures as SVG and PNG; returns the files."""
    drawn = objectives_drawings(studies)
    if len(drawn) > 1:
        drawn = [
            Drawing(f"{one.name}_{number}", one.title, one.description, one.figure)
            for number, one in enumerate(drawn, 1)
        ]
    return [path for drawing in drawn for path in save_drawing(drawing, Path(directory))]


def _drawing(model: str, study: Objectives, named: bool) -> Drawing:
    names = [PLAIN, *study.objectives]
    figure = Figure((WIDTH, 1.1 + _ROW * len(names)), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (metric, label) in zip(panels, _SHOWN.items(), strict=True):
        _dots(axes, study, names, metric)
        axes.set_xlabel(label)
    panels[0].set_yticks(range(len(names)), [study.row(name).label for name in names])
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    panels[0].set_ylabel("searched with")
    views = study.budgets[-1]
    if named:
        figure.suptitle(shorten(model), x=0.01, ha="left", fontsize=11, color=INK)
    words = "; ".join(
        f"{study.row(name).label}: "
        + ", ".join(
            f"{label} {measured_text(study.row(name).metrics[metric], metric)}"
            for metric, label in _SHOWN.items()
        )
        for name in names
    )
    title = f"Policies of {views} views by what they were searched with"
    return Drawing("objectives", title, words + ".", figure)


def _dots(axes: Axes, study: Objectives, names: list[str], metric: str) -> None:
    scale, _ = METRIC_FORMATS[metric]
    for place, name in enumerate(names):
        one = study.row(name).metrics[metric]
        color = {PLAIN: PLAIN_COLOR, REFERENCE: POLICY_COLOR}.get(name, _OTHER)
        axes.errorbar(
            scale * one.mean,
            place,
            xerr=scale * one.deviation or None,
            fmt="s" if name == PLAIN else "o",
            color=color,
            ms=6,
            lw=1.6,
            capsize=3,
        )
    axes.grid(axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
