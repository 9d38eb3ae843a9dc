"""How methods look: one colour, marker and dash each, the same in every figure and table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from relook.evaluation.baselines import POLICY_METHOD

PLAIN_METHOD = "plain"

# Light theme. The page replaces each colour by its variable, so no two may be equal.
INK = "#1c2128"
FAINT = "#68707c"
GRID = "#e4e7eb"
PAPER = "#fefefe"
POLICY_COLOR = "#d1450b"
PLAIN_COLOR = "#7a828e"

# Hues that people with the common kinds of colour blindness can distinguish (after P. Tol's
# "muted"); none is near the policy's.
_BASELINE_COLORS = ("#3b3fa8", "#14804a", "#2f9cc4", "#a8459b", "#8f8a1f", "#3fa596", "#5b4a2e")

PAGE_VARIABLES = {
    INK: "--ink",
    FAINT: "--faint",
    GRID: "--grid",
    PAPER: "--paper",
    POLICY_COLOR: "--policy",
    PLAIN_COLOR: "--plain",
    **{color: f"--method-{i}" for i, color in enumerate(_BASELINE_COLORS)},
}
"""The style sheet's variable for each colour that a figure is drawn with."""

Polygon = tuple[tuple[float, float], ...]

_MARKERS: tuple[Polygon, ...] = (
    ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    ((-1.1, -0.95), (1.1, -0.95), (0, 1.15)),
    ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    ((-1.1, 0.95), (1.1, 0.95), (0, -1.15)),
    ((-1.25, -0.45), (-0.45, -0.45), (-0.45, -1.25), (0.45, -1.25), (0.45, -0.45), (1.25, -0.45),
     (1.25, 0.45), (0.45, 0.45), (0.45, 1.25), (-0.45, 1.25), (-0.45, 0.45), (-1.25, 0.45)),
    ((-1.15, 0), (0.95, -1.1), (0.95, 1.1)),
    ((1.15, 0), (-0.95, -1.1), (-0.95, 1.1)),
)  # fmt: skip

_DASHES: tuple[tuple[float, ...], ...] = ((), (4.0, 1.6), (1.2, 1.6))
_LONGEST_LABEL = 40


@dataclass(frozen=True)
class MethodStyle:
    """A method's look; an empty `marker` is a disc, empty `dashes` a solid line."""

    method: str
    label: str
    color: str
    marker: Polygon = ()
    dashes: tuple[float, ...] = ()

    @property
    def is_policy(self) -> bool:
        """Whether this is the learned policy, which stands out."""
        return self.method == POLICY_METHOD

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain image."""
        return self.method == PLAIN_METHOD

    @property
    def variable(self) -> str:
        """The colour's variable in the style sheet."""
        return f"var({PAGE_VARIABLES[self.color]})"


def method_styles(named: Iterable[tuple[str, str]]) -> dict[str, MethodStyle]:
    """Return a style for every method: the policy first, the plain image, then the others.

    `named` has pairs of method and label; a method's first label counts.
    """
    labels: dict[str, str] = {}
    for method, label in named:
        labels.setdefault(method, shorten(label))
    own: dict[str, tuple[Any, ...]] = {
        POLICY_METHOD: (POLICY_COLOR,),
        PLAIN_METHOD: (PLAIN_COLOR, _MARKERS[0], (5.0, 3.0)),
    }
    styles = {
        method: MethodStyle(method, labels.pop(method), *look)
        for method, look in own.items()
        if method in labels
    }
    others = enumerate(labels.items())
    return styles | {method: numbered(number, method, label) for number, (method, label) in others}


def numbered(number: int, method: str, label: str) -> MethodStyle:
    """Return the style of the given number; none is the policy's or the plain image's."""
    color = _BASELINE_COLORS[number % len(_BASELINE_COLORS)]
    # In the next round, each colour gets another marker.
    marker = _MARKERS[(number + number // len(_BASELINE_COLORS)) % len(_MARKERS)]
    dashes = _DASHES[number // len(_BASELINE_COLORS) % len(_DASHES)]
    return MethodStyle(method, label, color, marker, dashes)


def shorten(text: str, longest: int = _LONGEST_LABEL) -> str:
    """Cut a text from outside to a length, without unprintable characters."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in cut)
