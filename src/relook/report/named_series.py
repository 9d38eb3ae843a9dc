"""Looks for series that are no methods: models, groups, objectives, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relook.report.style import MethodStyle, method_styles


@dataclass(frozen=True)
class _Series:
    method: str
    label: str


def series_styles(names: Iterable[str]) -> dict[str, MethodStyle]:
    """Return a colour and a marker for each name; none looks like the policy."""
    listed = list(names)
    # Numbered, so that a series called "plain" or "gps" is no special method.
    styles = method_styles([_Series(f"series {i}", name) for i, name in enumerate(listed)])
    return dict(zip(listed, styles.values(), strict=True))
