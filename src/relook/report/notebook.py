"""Policies, searches and comparisons as shown in a notebook or a terminal."""

from __future__ import annotations

import io
import shutil
import sys
from dataclasses import replace
from functools import partial
from typing import Any

from rich.console import Console

from relook.errors import MissingExtraError, unknown_name
from relook.evaluation.baselines import POLICY_METHOD
from relook.evaluation.comparison import Comparison
from relook.foundation.screen import is_terminal
from relook.foundation.wording import count
from relook.policy import Policy
from relook.policy.transform_counts import transform_statistics
from relook.policy_search.search import PolicySearch
from relook.report.comparison_tables import print_comparison, shown_rows
from relook.report.gallery import picture_gallery
from relook.report.html import render
from relook.report.pictures import builtin_picture
from relook.report.style import PAGE_VARIABLES
from relook.report.summary import Summary

_SIDE = 64
_MOST_ROWS = 30
_MOST_VIEWS = 40
_WIDTH = 100
# A notebook has a theme of its own: text and lines take its colour.
_COLORS = {
    **{variable: color for color, variable in PAGE_VARIABLES.items()},
    "--ink": "currentColor",
    "--faint": "color-mix(in srgb, currentColor 70%, transparent)",
    "--grid": "color-mix(in srgb, currentColor 18%, transparent)",
    "--paper": "transparent",
}


class _Shown(io.StringIO):
    """Text that will be printed where the program's output goes."""

    def isatty(self) -> bool:
        """Whether that is a terminal."""
        return is_terminal(sys.stdout)


def html(shown: object) -> str:
    """Return a policy, a comparison or a search's result as HTML.

    A policy is shown as its views of a built-in image, with a line on each; a comparison as its
    verdict, its table and, with matplotlib, its curves.
    """
    policy = shown if isinstance(shown, Policy) else None
    comparison = shown if isinstance(shown, Comparison) else None
    scores: tuple[float, ...] = ()
    if isinstance(shown, PolicySearch):
        policy, comparison, scores = shown.policy, shown.comparison, shown.trace.scores
    if policy is None and comparison is None:
        raise TypeError(f"expected a policy, a comparison or a search, got {type(shown).__name__}")
    gallery = policy is not None and picture_gallery(policy, builtin_picture(_SIDE), _MOST_VIEWS)
    page = render(
        "notebook.html",
        colors=_COLORS,
        comparison=comparison,
        summary=comparison and Summary(comparison),
        figures=comparison and _curves(comparison),
        scores=scores,
        gallery=gallery,
        uses=() if policy is None else transform_statistics(policy),
    )
    return str(page)


def text(shown: Comparison | PolicySearch) -> str:
    """Return verdict and table; of many rows only the policy's, its rivals' and the last ones."""
    comparison = shown if isinstance(shown, Comparison) else shown.comparison
    rows = shown_rows(comparison)
    if len(rows) > _MOST_ROWS:
        own = [row for row in rows if row.method == POLICY_METHOD]
        kept = {(method, row.budget) for row in own for method in (row.method, row.rival)}
        kept |= {row.method: row.budget for row in rows}.items()  # each method's most views
        rows = [row for row in rows if (row.method, row.budget) in kept]
    few = replace(comparison, rows=tuple(rows))
    file = _Shown()
    width = shutil.get_terminal_size().columns if file.isatty() else _WIDTH
    # In a notebook, Rich would show the table by itself, in colours, and leave the text empty.
    console = Console(
        file=file, width=width, highlight=False, force_jupyter=False, force_terminal=False
    )
    print_comparison(few, console)
    left = len(shown_rows(comparison)) - len(shown_rows(few))
    more = f"\n{count(left, 'more row')} in to_pandas() and report()." if left else ""
    return file.getvalue().strip() + more


def figure(comparison: Comparison, name: str) -> Any:
    """Return one of the report's figures by its name."""
    from relook.report.figures import comparison_drawings

    drawn = {one.name: one.figure for one in comparison_drawings(comparison, legend=True)}
    if name not in drawn:
        raise unknown_name("figure", name, drawn)
    found = drawn[name]
    # Jupyter shows only pyplot's figures by itself; this one needs a method for that.
    found._repr_png_ = partial(_png, found)  # type: ignore[attr-defined]
    return found


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=120, facecolor="white")
    return file.getvalue()


def _curves(comparison: Comparison) -> list[str]:
    try:
        from relook.report.figures import comparison_drawings, inline_svg
    except MissingExtraError:
        return []
    drawings = comparison_drawings(comparison, legend=True)
    return [inline_svg(one) for one in drawings if one.name in ("cll", "accuracy")]
