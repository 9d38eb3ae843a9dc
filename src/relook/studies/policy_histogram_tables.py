"""A histogram of policies as tables: for the terminal, CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from relook.io.files import csv_safe
from relook.report.tables import new_table, tex
from relook.studies.policy_histogram import PolicyGroup, PolicyHistogram
from relook.studies.study_tables import csv_text, markdown_lines

_TOTAL = "all that change the image"
_PLAIN = "entries that are the plain image"


def histogram_table(histogram: PolicyHistogram) -> Table:
    """Return a line a transform: its count in a policy and its mean magnitude, group by group."""
    table = new_table("uses of each transform in a policy, and their mean magnitude (M)")
    table.add_column("transform", no_wrap=True)
    for head in _heads(histogram.groups):
        table.add_column(head, justify="right")
    lines = _lines(histogram)
    for place, cells in enumerate(lines):
        if place == len(lines) - 2:
            table.add_section()
        table.add_row(*map(Text, cells))
    return table


def histogram_markdown(histogram: PolicyHistogram) -> str:
    """Return the same table as Markdown."""
    heads = ["transform", *_heads(histogram.groups)]
    return "\n".join([*markdown_lines(heads, _lines(histogram)), ""])


def histogram_csv(histogram: PolicyHistogram) -> str:
    """Return the counts as CSV, one line a group and transform."""
    rows: list[Sequence[object]] = [
        ("group", "policies", "entries", "transform", "count", "mean_magnitude")
    ]
    for group in histogram.groups:
        own = (csv_safe(group.name), group.policies, f"{group.entries:g}")
        rows.append((*own, "plain", f"{group.plain:.8g}", ""))
        for name in histogram.transforms:
            use = group.use(name)
            strength = "" if use.magnitude is None else f"{use.magnitude:.8g}"
            rows.append((*own, name, f"{use.count:.8g}", strength))
    return csv_text(rows)


def histogram_latex(histogram: PolicyHistogram) -> str:
    """Return the same table as LaTeX, which needs `\\usepackage{booktabs}`."""
    groups = histogram.groups
    spans = [rf"\multicolumn{{2}}{{c}}{{{tex(group.name)}}}" for group in groups]
    rules = [rf"\cmidrule(l){{{2 + 2 * i}-{3 + 2 * i}}}" for i in range(len(groups))]
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{l{'rr' * len(groups)}}}",
        r"\toprule",
        " & ".join(["", *spans]) + r" \\",
        " ".join(rules),
        " & ".join(["Transform", *["Count", "$M$"] * len(groups)]) + r" \\",
        r"\midrule",
    ]
    lines += [" & ".join(tex(cell) for cell in cells) + r" \\" for cells in _lines(histogram)]
    lines += [
        r"\bottomrule",
        r"\end{tabular}",
        r"\caption{Counts and mean magnitudes of the transforms in learned policies.}",
        r"\label{table:transform-hist}",
        r"\end{table}",
    ]
    return "\n".join(lines).replace("–", "--") + "\n"


def _heads(groups: Sequence[PolicyGroup]) -> list[str]:
    return [head for group in groups for head in (group.name, "M")]


def _lines(histogram: PolicyHistogram) -> list[list[str]]:
    lines = []
    for name in histogram.transforms:
        cells = [name.replace("_", " ")]
        for group in histogram.groups:
            use = group.use(name)
            cells += [_count(use.count), _magnitude(use.magnitude)]
        lines.append(cells)
    total, plain = [_TOTAL], [_PLAIN]
    for group in histogram.groups:
        total += [_count(group.changing), _magnitude(group.magnitude)]
        plain += [f"{_count(group.plain)} of {_count(group.entries)}", ""]
    return [*lines, total, plain]


def _count(value: float) -> str:
    return f"{value:g}" if value == round(value) else f"{value:.1f}"


def _magnitude(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"
