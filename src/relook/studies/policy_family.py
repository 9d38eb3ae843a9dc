"""How several learned policies look in one figure: the policy's colour, other dashes and marks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from relook.report.figures import line_look
from relook.report.style import POLICY_COLOR, MethodStyle, Polygon, shorten

_LOOKS: tuple[tuple[tuple[float, ...], Polygon], ...] = (
    ((), ()),
    ((4.0, 1.4), ((-1, -1), (1, -1), (1, 1), (-1, 1))),
    ((1.2, 1.4), ((-1.1, -0.95), (1.1, -0.95), (0, 1.15))),
    ((6.0, 1.4, 1.2, 1.4), ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0))),
    ((2.4, 1.2), ((-1.1, 0.95), (1.1, 0.95), (0, -1.15))),
)


def family_styles(labels: Mapping[str, str]) -> dict[str, MethodStyle]:
    """Return a style for each policy, by name; `labels` are what figures call them."""
    styles = {}
    for number, (name, label) in enumerate(labels.items()):
        dashes, marker = _LOOKS[number % len(_LOOKS)]
        styles[name] = MethodStyle(name, shorten(label), POLICY_COLOR, marker, dashes)
    return styles


def family_look(style: MethodStyle) -> dict[str, Any]:
    """Return how a line is drawn: policies thick, all else as everywhere."""
    return {**line_look(style), **({"lw": 2.2} if style.color == POLICY_COLOR else {})}
