"""A study's index: one page with every table and figure in order, as Markdown and as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relook.io.files import one_line, write_text_atomic
from relook.report.figures import inline_svg, save_drawing
from relook.report.html import render
from relook.studies.reproduce.sections import Section, TableFiles

TABLES, FIGURES = "tables", "figures"
_REM_PER_INCH = 6.2
_LONG = 24  # lines of a table that is folded


@dataclass(frozen=True)
class Cell:
    """A table's cell: its text, the deviation after it, whether it is bold."""

    text: str
    deviation: str
    bold: bool


@dataclass(frozen=True)
class Block:
    """A paragraph (plain and bold spans by turns) and the table below it; either may be empty."""

    words: list[str]
    heads: list[list[Cell]]
    rows: list[list[Cell]]
    numeric: list[bool]


def write_study(sections: Sequence[Section], title: str, facts: Sequence[str], out: Path) -> Path:
    """Write tables, figures, index.md and index.html into a directory; returns the page's path.

    `facts` are lines on what was run.
    """
    for section in sections:
        for table in section.tables:
            for ending, text in _forms(table):
                write_text_atomic(out / TABLES / f"{table.name}.{ending}", text)
        for drawing in section.drawings:
            save_drawing(drawing, out / FIGURES)
    write_text_atomic(out / "index.md", study_markdown(sections, title, facts))
    page = out / "index.html"
    write_text_atomic(page, study_html(sections, title, facts))
    return page


def study_markdown(sections: Sequence[Section], title: str, facts: Sequence[str]) -> str:
    """Return the index as Markdown; figures are links to their files."""
    lines = [f"# {_text(title)}", "", *(f"- {_text(fact)}" for fact in facts)]
    for section in sections:
        lines += ["", f"## {_text(section.title)}", "", f"{section.paper}. {section.words}"]
        for drawing in section.drawings:
            lines += ["", f"![{_text(drawing.title)}]({FIGURES}/{drawing.name}.png)"]
        for table in section.tables:
            files = ", ".join(f"[{e}]({TABLES}/{table.name}.{e})" for e, _ in _forms(table))
            lines += ["", table.markdown.strip(), "", f"The table as {files}."]
    return "\n".join(lines) + "\n"


def study_html(sections: Sequence[Section], title: str, facts: Sequence[str]) -> str:
    """Return the index as one page that loads nothing; its figures are inside."""
    page = render(
        "study.html",
        title=title,
        facts=facts,
        sections={section.name: section.title for section in sections},
        parts=[
            {
                "section": section,
                "figures": [(drawing, inline_svg(drawing)) for drawing in section.drawings],
                "tables": [
                    (table, list(_blocks(table.markdown)), table.markdown.count("\n") > _LONG)
                    for table in section.tables
                ],
            }
            for section in sections
        ],
        rem_per_inch=_REM_PER_INCH,
    )
    return str(page)


def _forms(table: TableFiles) -> tuple[tuple[str, str], ...]:
    return (("md", table.markdown), ("csv", table.csv), ("tex", table.latex))


def _blocks(markdown: str) -> Iterator[Block]:
    """Read the paragraphs and tables of Markdown that relook wrote."""
    for block in re.split(r"\n\s*\n", markdown.strip()):
        lines = block.splitlines()
        start = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
        cells = [[_cell(cell) for cell in _cells(line)] for line in lines[start:]]
        numeric = [rule.text.endswith(":") for rule in cells[1]] if cells else []
        yield Block(_spans(" ".join(lines[:start])), cells[:1], cells[2:], numeric)


def _cell(text: str) -> Cell:
    """Return a cell; the deviation after a mean stands apart."""
    mean, _, deviation = text.replace("**", "").partition(" ± ")
    return Cell(mean, deviation, text.startswith("**"))


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _spans(text: str) -> list[str]:
    """Return the parts of a text that are plain and bold (between two stars) by turns."""
    return re.split(r"\*\*(.+?)\*\*", text)


def _text(text: str) -> str:
    """Return a text from outside as one line that Markdown takes as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", one_line(text))
