"""A study as tables, figures and files see it: one declaration, over results alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relook.evaluation.results import Results
from relook.report.tables import Table, markdown

if TYPE_CHECKING:  # what draws needs matplotlib
    from relook.report.figures import Drawing


def no_figures(results: Results) -> Sequence[Drawing]:
    """Return nothing: for studies that are tables alone."""
    return ()


def no_tables(results: Results) -> Sequence[Table]:
    """Return nothing: for studies that are figures alone."""
    return ()


@dataclass(frozen=True)
class Study:
    """One study: its tables, as people see them and as in the paper, and its figures.

    `title`, `paper` (what of the paper it is) and `words` stand above it on a page. All are
    made from results, which may be those of several models. `brief` has the tables that a
    terminal shows, where those are fewer.
    """

    name: str
    title: str
    paper: str
    words: str
    tables: Callable[[Results], Sequence[Table]] = no_tables
    latex: Callable[[Results], Table] | None = None
    figures: Callable[[Results], Sequence[Drawing]] = no_figures
    brief: Callable[[Results], Sequence[Table]] | None = None

    def markdown(self, results: Results) -> str:
        """Return the tables and the answer as Markdown."""
        parts = [markdown(table) for table in self.tables(results)]
        return "\n".join([*parts, *([f"{results.sentence}\n"] if results.sentence else [])])

    def save_figures(self, results: Results, directory: str | Path) -> list[Path]:
        """Write the figures as SVG and PNG; returns the files."""
        from relook.report.figures import save_drawing

        return [p for one in self.figures(results) for p in save_drawing(one, Path(directory))]
