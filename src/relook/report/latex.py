"""Tables as LaTeX, in the paper's form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from relook.report.tables import Cell, Column, Table, with_repeats_left_out, without_columns

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "%": r"\%",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
}


def latex(table: Table) -> str:
    """Return the table as LaTeX with booktabs, in the paper's form; intervals are left out.

    It needs `\\usepackage{booktabs,graphicx}`.
    """
    table = without_columns(table, [c for c in table.columns if c.optional])
    width = len(table.columns)
    align = "l" * width if table.wide else "".join("c" if c.number else "l" for c in table.columns)
    kind = "table*" if table.wide else "table"
    body: list[str] = []
    for number, section in enumerate(with_repeats_left_out(table)):
        body += [r"\midrule"] * bool(number)
        body += [" & ".join(_tex_cell(cell) for cell in line) + r" \\" for line in section]
    return "\n".join(
        [
            rf"\begin{{{kind}}}",
            r"\centering",
            *([r"\resizebox{1.\textwidth}{!}{"] if table.wide else []),
            rf"\begin{{tabular}}{{{align}}}",
            r"\toprule",
            *_tex_heads(table.columns),
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            *(["}"] if table.wide else []),
            rf"\caption{{{tex(table.caption or table.title)}}}",
            rf"\label{{{table.label}}}",
            rf"\end{{{kind}}}",
            "",
        ]
    )


def tex(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def _tex_cell(cell: Cell) -> str:
    spread = rf" {{\tiny$\pm${cell.spread}}}" if cell.spread else ""
    text = tex(cell.text) + spread
    return rf"\textbf{{{text}}}" if cell.bold else text


def _tex_heads(columns: Sequence[Column]) -> list[str]:
    """Return the lines of heads: neighbours with the same head share it, a rule below."""
    depth = max(len(column.heads) for column in columns)
    levels = [(*column.heads, *[""] * (depth - len(column.heads))) for column in columns]
    lines = []
    for level in range(depth):
        cells, rules, start = [], [], 1
        for heads, group in groupby(levels, key=lambda heads: heads[: level + 1]):
            count = len(list(group))
            alone = level == depth - 1 or not heads[-1] or not columns[start - 1].number
            if alone:
                cells += [_tex_head(heads[-1])] * count
            else:
                cells.append(rf"\multicolumn{{{count}}}{{c}}{{{tex(heads[-1])}}}")
                rules.append(rf"\cmidrule(l){{{start}-{start + count - 1}}}")
            start += count
        lines += [" & ".join(cells) + r" \\", *([" ".join(rules)] if rules else [])]
    return lines


def _tex_head(text: str) -> str:
    return rf"\multicolumn{{1}}{{c}}{{\scriptsize{{{text}}}}}" if text.isdigit() else tex(text)
