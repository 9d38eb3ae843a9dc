"""A study's index: one page with every table and figure in order, as Markdown and as HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from string import Template

import relook
from relook.io.files import one_line, write_text_atomic
from relook.report.figures import Drawing, inline_svg, save_drawing
from relook.report.markup import Html, element, escape, join
from relook.report.page import resource
from relook.studies.reproduce.sections import Section, TableFiles

TABLES, FIGURES = "tables", "figures"
_REM_AN_INCH = 6.2
_LONG = 24  # lines of a table that is folded

_STYLE = """
.figures.study { display: block; }
.figures.study figure { margin-bottom: 2.5rem; max-width: 100%; }
.study-table { margin: 1.5rem 0 0.5rem; }
.study-table p { margin: 1.25rem 0 0.4rem; max-width: 60rem; text-wrap: pretty; }
.study-table .scroll { margin-bottom: 0.5rem; }
.study-table table { width: auto; min-width: min(100%, 40rem); font-size: 0.8125rem; }
.study-table th, .study-table td { padding: 0.35rem 0.4rem; }
.study-table thead th { white-space: nowrap; }
.study-table .interval { display: block; font-size: 0.6875rem; line-height: 1.2; }
.study-table .files { margin-top: 0.5rem; color: var(--faint); font-size: 0.875rem; }
.files a, figcaption a { color: inherit; }
summary { cursor: pointer; color: var(--faint); }
"""


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
    links = [element("a", section.title, href=f"#{section.name}") for section in sections]
    head = element(
        "header",
        element("p", element("b", "relook"), " study", class_="brand"),
        element("h1", title),
        *(element("p", fact, class_="subject") for fact in facts),
        element("nav", *links, aria_label="Sections"),
    )
    foot = element(
        "footer", f"Written by relook {relook.__version__}. This page loads nothing from elsewhere."
    )
    return Template(resource("page.html")).substitute(
        title=escape(f"{title} · relook"),
        style=resource("report.css") + _STYLE,
        body=join([head, element("main", *(_section(one) for one in sections)), foot]),
    )


def _section(section: Section) -> Html:
    figures = [_figure(drawing) for drawing in section.drawings]
    return element(
        "section",
        element("h2", section.title),
        element("p", f"{section.words} ({section.paper}.)", class_="lead"),
        element("div", *figures, class_="figures study") if figures else None,
        *(_table(table) for table in section.tables),
        id=section.name,
    )


def _figure(drawing: Drawing) -> Html:
    width = float(drawing.figure.get_size_inches()[0]) * _REM_AN_INCH
    links = _links(FIGURES, drawing.name, ("svg", "png"))
    caption = element("figcaption", element("b", drawing.title), ". ", links)
    return element("figure", inline_svg(drawing), caption, style=f"max-width: {width:.1f}rem")


def _table(table: TableFiles) -> Html:
    shown = join(_blocks(table.markdown))
    if table.markdown.count("\n") > _LONG:
        shown = element("details", element("summary", "All numbers"), shown)
    links = _links(TABLES, table.name, [ending for ending, _ in _forms(table)])
    files = element("p", "The table as ", links, class_="files")
    return element("div", shown, files, class_="study-table")


def _links(folder: str, name: str, endings: Iterable[str]) -> Html:
    parts = [element("a", ending, href=f"{folder}/{name}.{ending}") for ending in endings]
    return join([one for part in parts for one in (part, " ")])


def _forms(table: TableFiles) -> tuple[tuple[str, str], ...]:
    return (("md", table.markdown), ("csv", table.csv), ("tex", table.latex))


def _blocks(markdown: str) -> Iterator[Html]:
    """Turn the paragraphs and tables of Markdown that relook wrote into HTML."""
    for block in re.split(r"\n\s*\n", markdown.strip()):
        lines = block.splitlines()
        start = next((i for i, line in enumerate(lines) if line.startswith("|")), len(lines))
        if start:
            yield element("p", _marked(" ".join(lines[:start])))
        if start < len(lines):
            yield element("div", _html_table(lines[start:]), class_="scroll", tabindex=0)


def _html_table(lines: Sequence[str]) -> Html:
    heads, rules, *rows = [_cells(line) for line in lines]
    kinds = ["number" if rule.endswith(":") else None for rule in rules]

    def row(name: str, cells: Sequence[str]) -> Html:
        made = [
            element(name, _cell(cell), class_=kind)
            for cell, kind in zip(cells, kinds, strict=False)
        ]
        return element("tr", *made)

    return element(
        "table",
        element("thead", row("th", heads)),
        element("tbody", *(row("td", cells) for cells in rows)),
    )


def _cell(text: str) -> Html:
    """Return a cell; the deviation after a mean is small."""
    mean, sign, spread = text.replace("**", "").partition(" ± ")
    if not sign:
        return _marked(text)
    shown = element("b", mean) if text.startswith("**") else escape(mean)
    return join([shown, element("span", f"±{spread}", class_="interval")])


def _cells(line: str) -> list[str]:
    inner = line.strip().removeprefix("|").removesuffix("|")
    return [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]


def _marked(text: str) -> Html:
    """Escape a text; what stands between two stars twice is bold."""
    parts = re.split(r"\*\*(.+?)\*\*", text)
    return join(
        element("b", part) if number % 2 else escape(part) for number, part in enumerate(parts)
    )


def _text(text: str) -> str:
    """Return a text from outside as one line that Markdown takes as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", one_line(text))
