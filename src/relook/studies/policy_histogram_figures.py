"""The figure of what policies are made of: counts and mean magnitudes, group beside group."""

from __future__ import annotations

from pathlib import Path

from relook.errors import MissingExtraError
from relook.report.figures import WIDTH, Drawing, house_style, legend_rows, save_drawing
from relook.report.style import FAINT, INK, series_styles
from relook.studies.policy_histogram import TRIVIAL, PolicyGroup, PolicyHistogram

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator
except ImportError:
    raise MissingExtraError("matplotlib", "report", "drawing figures") from None

_BAR = 0.13  # inches


def histogram_drawing(histogram: PolicyHistogram) -> Drawing:
    """Draw the transforms that change the image: how often a policy uses each, how strongly."""
    names = [name for name in histogram.transforms if name not in TRIVIAL]
    groups = histogram.groups
    styles = series_styles([group.name for group in groups])
    inches = 1.0 + (_BAR * len(groups) + 0.13) * max(len(names), 1) + 0.24 * legend_rows(groups)
    with house_style():
        figure = Figure((WIDTH, inches), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        for number, group in enumerate(groups):
            shift = (number - (len(groups) - 1) / 2) * 0.8 / len(groups)
            places = [place + shift for place in range(len(names))]
            look = {"height": 0.72 / len(groups), "color": styles[group.name].color}
            uses = [group.use(name) for name in names]
            left.barh(places, [use.count for use in uses], **look)
            right.barh(places, [use.magnitude or 0.0 for use in uses], **look)
        left.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
        left.set_ylim(len(names) - 0.45, -0.55)
        for axes, label in ((left, "uses in a policy"), (right, "mean magnitude")):
            _finish(axes, label)
        figure.legend(
            handles=[Patch(color=styles[g.name].color, label=_label(g)) for g in groups],
            loc="outside lower left",
            ncols=2,
            frameon=False,
            fontsize=9.5,
        )
    words = "; ".join(_words(group, names) for group in groups)
    return Drawing("policy_transforms", "Transforms of learned policies", words + ".", figure)


def save_histogram_figure(histogram: PolicyHistogram, directory: str | Path) -> list[Path]:
    """Write the figure as SVG and PNG; returns the files."""
    return save_drawing(histogram_drawing(histogram), Path(directory))


def _finish(axes: Axes, label: str) -> None:
    axes.set_title(label, loc="left", color=FAINT)
    axes.grid(axis="x")
    axes.tick_params(length=0)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))


def _label(group: PolicyGroup) -> str:
    many = "1 policy" if group.policies == 1 else f"{group.policies} policies"
    return f"{group.name} ({many})"


def _words(group: PolicyGroup, names: list[str]) -> str:
    found = ", ".join(
        f"{name.replace('_', ' ')} {group.use(name).count:.3g} times"
        + ("" if (m := group.use(name).magnitude) is None else f" at {m:.1f}")
        for name in names
    )
    return f"{group.name}: {found or 'nothing changes the image'}"
