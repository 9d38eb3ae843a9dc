"""The figure of a study of magnitudes: accuracy, LL and cLL against M, and M* on each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from relook.errors import MissingExtraError
from relook.foundation.wording import views_text
from relook.report.figures import WIDTH, Drawing, house_style, save_drawing
from relook.report.style import INK, POLICY_COLOR, shorten
from relook.studies.magnitudes_result import Magnitudes

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.ticker import FixedLocator, MaxNLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_COLUMN = 3.2  # inches of a model's column beside others
_HEIGHT = 5.0
_LOOKS: dict[str, tuple[str, tuple[float, ...]]] = {
    "accuracy": ("#14804a", ()),
    "log_likelihood": ("#3b3fa8", (4.0, 1.6)),
    "cll": (POLICY_COLOR, ()),
}
_NAMES = {
    "accuracy": "accuracy (%)",
    "log_likelihood": "log-likelihood",
    "cll": "calibrated log-likelihood (cLL)",
}


def magnitudes_drawing(studies: Mapping[str, Magnitudes]) -> Drawing:
    """Draw each model's column: accuracy above, LL and cLL below, a ring at each metric's M*."""
    count = len(studies)
    with house_style():
        figure = Figure((WIDTH if count == 1 else _COLUMN * count, _HEIGHT), layout="constrained")
        panels = figure.subplots(2, count, sharex=True, squeeze=False)
        for column, (model, study) in enumerate(studies.items()):
            above, below = panels[0, column], panels[1, column]
            if count > 1:
                above.set_title(shorten(model, 30), loc="left", color=INK)
            _curve(above, study, "accuracy", 100.0)
            for metric in ("log_likelihood", "cll"):
                _curve(below, study, metric, 1.0)
            for axes in (above, below):
                _finish(axes, study)
            below.set_xlabel("magnitude M")
        panels[0, 0].set_ylabel("accuracy (%)")
        panels[1, 0].set_ylabel("log-likelihood")
        figure.align_ylabels(panels[:, 0])
        _legend(figure)
    words = " ".join(f"{model}: {study.sentence}" for model, study in studies.items())
    views = next(iter(studies.values())).views
    title = f"RandAugment with {views_text(views)} at rising magnitudes"
    return Drawing("magnitudes", title, words, figure)


def save_magnitudes_figure(studies: Mapping[str, Magnitudes], directory: str | Path) -> list[Path]:
    """Write the figure as SVG and PNG; returns the files."""
    return save_drawing(magnitudes_drawing(studies), Path(directory))


def _curve(axes: Axes, study: Magnitudes, metric: str, scale: float) -> None:
    color, dashes = _LOOKS[metric]
    steps = [row.magnitude for row in study.rows]
    measured = [row.metrics[metric] for row in study.rows]
    values = [scale * one.mean for one in measured]
    axes.plot(steps, values, color=color, lw=1.8, dashes=dashes)
    if any(one.deviation for one in measured):
        low = [scale * (one.mean - one.deviation) for one in measured]
        high = [scale * (one.mean + one.deviation) for one in measured]
        axes.fill_between(steps, low, high, color=color, alpha=0.15, lw=0)
    best = study.best(metric)
    place = (best.magnitude, scale * best.metrics[metric].mean)
    axes.plot(*place, "o", ms=8, mfc="none", mec=color, mew=1.8, zorder=4)
    below = metric == "log_likelihood"  # where its curve is, under the calibrated one
    axes.annotate(
        f"{best.magnitude:g}",
        place,
        (0, -8 if below else 8),
        textcoords="offset points",
        ha="center",
        va="top" if below else "bottom",
        color=color,
        fontsize=10,
        zorder=5,
    )


def _finish(axes: Axes, study: Magnitudes) -> None:
    axes.grid(axis="y")
    axes.margins(y=0.22)  # room for the numbers at M*
    axes.tick_params(length=0)
    axes.spines["left"].set_visible(False)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    steps = [row.magnitude for row in study.rows]
    axes.xaxis.set_major_locator(FixedLocator(steps[::2] if len(steps) > 7 else steps))


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=color, lw=1.8, label=_NAMES[metric], dashes=dashes)
        for metric, (color, dashes) in _LOOKS.items()
    ]
    ring = Line2D([], [], marker="o", ms=8, mfc="none", mec=INK, mew=1.5, lw=0)
    ring.set_label("M*: the best by that metric")
    figure.legend(
        handles=[*handles, ring], loc="outside lower left", ncols=2, frameon=False, fontsize=9.5
    )
