"""A study's index: one page with every table and figure in order, as Markdown and as HTML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from relook.io.files import one_line, write_text_atomic
from relook.report.figures import inline_svg, save_drawing
from relook.report.html import render
from relook.report.tables import html
from relook.studies.reproduce.sections import Section

TABLES, FIGURES = "tables", "figures"
_REM_PER_INCH = 6.2
_LONG = 24  # lines of a table that is folded


def write_study(sections: Sequence[Section], title: str, facts: Sequence[str], out: Path) -> Path:
    """Write tables, figures, index.md and index.html into a directory; returns the page's path.

    `facts` are lines on what was run.
    """
    for section in sections:
        for ending, text in section.files.items():
            write_text_atomic(out / TABLES / f"{section.name}.{ending}", text)
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
        if section.files:
            files = ", ".join(f"[{e}]({TABLES}/{section.name}.{e})" for e in section.files)
            lines += ["", section.files["md"].strip(), "", f"The table as {files}."]
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
                "tables": [html(one) for one in section.tables],
                "is_long": sum(len(table.lines) for table in section.tables) > _LONG,
            }
            for section in sections
        ],
        rem_per_inch=_REM_PER_INCH,
    )
    return str(page)


def _text(text: str) -> str:
    """Return a text from outside as one line that Markdown takes as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", one_line(text))
