"""The paper's tables: rows are data sets and models, columns methods and budgets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from relook.evaluation.baselines import BASELINES, POLICY_METHOD, has_own_budget
from relook.evaluation.comparison import Comparison, Measured
from relook.io.files import csv_safe
from relook.report.tables import SHORT_NAMES, tex
from relook.studies.robustness_result import Robustness
from relook.studies.study_tables import csv_text, markdown_lines

PAPER_ORDER = ("plain", "5c", "10c", "cf", "mtrain", "mgrid", POLICY_METHOD)
"""The methods of the paper's tables, from left to right."""

Column = tuple[str, int]
"""A method and a budget."""

Cell = Measured | None


@dataclass(frozen=True)
class Block:
    """Columns of one metric: `cells` has a line a row, a cell a column; None: not scored."""

    title: str
    cells: tuple[tuple[Cell, ...], ...]
    scale: float = 1.0
    digits: int = 3
    lowest: bool = False
    """Whether the lowest is the best."""

    def is_best(self, row: int, cell: Measured) -> bool:
        """Whether a cell is the best of its row, or is written just like it."""
        cells = [one for one in self.cells[row] if one is not None]
        best = (min if self.lowest else max)(cells, key=lambda one: one.mean)
        return self.text(cell)[0] == self.text(best)[0]

    def text(self, cell: Measured) -> tuple[str, str]:
        """Return a cell's mean and deviation, the latter empty where there is none."""
        spread = f"{self.scale * cell.deviation:.{self.digits}f}" if cell.deviation else ""
        return f"{self.scale * cell.mean:.{self.digits}f}", spread


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: blocks of columns, each with the same methods and budgets."""

    label: str
    caption: str
    rows: tuple[tuple[str, str], ...]
    columns: tuple[Column, ...]
    blocks: tuple[Block, ...]


def in_domain_table(
    found: Mapping[tuple[str, str], Comparison], budgets: Sequence[int] = ()
) -> PaperTable:
    """Return cLL and accuracy of every method: `table:acc-nll-cifars`, `table:acc-nll-ImageNet`.

    `found` has a comparison for each data set and model; `budgets` are those of the columns
    (default: all that were asked for).
    """
    wanted = tuple(budgets) or max((one.budgets for one in found.values()), key=len)
    columns = _columns({row.method for one in found.values() for row in one.rows}, wanted)

    def cells(metric: str) -> tuple[tuple[Cell, ...], ...]:
        return tuple(
            tuple(_metric(one, column, metric) for column in columns) for one in found.values()
        )

    return PaperTable(
        "table:acc-nll",
        f"Calibrated log-likelihood and accuracy of test-time augmentation: {_legend(columns)}.",
        tuple(found),
        columns,
        (
            Block("Calibrated log-likelihood", cells("cll")),
            Block("Accuracy (%)", cells("accuracy"), 100.0, 2),
        ),
    )


def corruption_table(found: Mapping[tuple[str, str], Robustness]) -> PaperTable:
    """Return muCE of every method, or mCE: `table:ce-cifarsC`, `table:ce-ImageNetC`."""
    budgets = max((one.budgets for one in found.values()), key=len)
    columns = _columns({row.method for one in found.values() for row in one.rows}, budgets)
    normalised = all(one.normalised for one in found.values())
    title = "Mean corruption error (mCE)"
    if not normalised:
        title = "Mean unnormalized corruption error (muCE, %)"
    cells = tuple(
        tuple(_error(one, column, normalised) for column in columns) for one in found.values()
    )
    block = Block(title, cells, 1.0 if normalised else 100.0, 3, lowest=True)
    return PaperTable("table:ce", f"{title}: {_legend(columns)}.", tuple(found), columns, (block,))


def paper_markdown(table: PaperTable) -> str:
    """Return a table a block as Markdown; the best of each row is bold."""
    lines = [table.caption]
    for block in table.blocks:
        heads = ["data", "model", *(_head(column) for column in table.columns)]
        rows = [
            [*names, *(_marked(block, row, cell) for cell in block.cells[row])]
            for row, names in enumerate(table.rows)
        ]
        title = ["", f"{block.title}:"] if len(table.blocks) > 1 else []
        lines += [*title, "", *markdown_lines(heads, rows, texts=2)]
    return "\n".join(lines) + "\n"


def paper_csv(table: PaperTable) -> str:
    """Return the table as CSV, a line a row, with deviations in columns of their own."""
    heads: list[object] = ["dataset", "model"]
    for block in table.blocks:
        for method, budget in table.columns:
            name = f"{block.title}: {SHORT_NAMES.get(method, method)} {budget}"
            heads += [name, f"{name} deviation"]
    rows: list[list[object]] = [heads]
    for row, names in enumerate(table.rows):
        values: list[object] = [csv_safe(name) for name in names]
        for block in table.blocks:
            for cell in block.cells[row]:
                values += ["", ""] if cell is None else _numbers(block, cell)
        rows.append(values)
    return csv_text(rows)


def paper_latex(table: PaperTable) -> str:
    """Return the table in the paper's form; it needs `\\usepackage{booktabs,graphicx}`."""
    width = len(table.columns)
    starts = [3 + number * width for number in range(len(table.blocks))]
    titles = [
        rf"\multicolumn{{{width}}}{{c}}{{\footnotesize {tex(block.title)}}}"
        for block in table.blocks
    ]
    rules = " ".join(rf"\cmidrule(l){{{start}-{start + width - 1}}}" for start in starts)
    under = [rule for start in starts for rule in _rules(table.columns, start)]
    lines = [
        r"\begin{table*}",
        r"\centering",
        r"\resizebox{1.\textwidth}{!}{",
        rf"\begin{{tabular}}{{{'l' * (2 + width * len(table.blocks))}}}",
        r"\toprule",
        " & ".join(["", "", *titles]) + r" \\",
        rules,
        " & ".join(["Dataset", "Model", *_spans(table.columns) * len(table.blocks)]) + r" \\",
        " ".join(under),
        " & ".join(["", "", *_budget_heads(table.columns) * len(table.blocks)]) + r" \\",
        r"\midrule",
        *_latex_rows(table),
        r"\bottomrule",
        r"\end{tabular}",
        "}",
        rf"\caption{{{tex(table.caption)}}}",
        rf"\label{{{table.label}}}",
        r"\end{table*}",
    ]
    return "\n".join(lines) + "\n"


def _columns(methods: set[str], budgets: Sequence[int]) -> tuple[Column, ...]:
    """Return the columns in the paper's order; a method with a budget of its own has one."""
    columns = []
    for method in [*PAPER_ORDER, *sorted(methods - set(PAPER_ORDER))]:
        if method in methods:
            own = None if method == POLICY_METHOD else BASELINES[method].budget
            columns += [(method, budget) for budget in ((own,) if own else budgets)]
    return tuple(columns)


def _metric(comparison: Comparison, column: Column, metric: str) -> Cell:
    row = comparison.row(*column)
    return None if row is None else row.metrics[metric]


def _error(study: Robustness, column: Column, normalised: bool) -> Cell:
    row = study.row(*column)
    if row is None:
        return None
    return Measured(row.mce, 0.0) if normalised else row.muce


def _legend(columns: Sequence[Column]) -> str:
    words = []
    for method in dict.fromkeys(method for method, _ in columns):
        row = BASELINES.get(method)
        about = "the learned policy" if row is None else row.about
        words.append(f"{about} ({SHORT_NAMES.get(method, method)})")
    return ", ".join(words)


def _head(column: Column) -> str:
    method, budget = column
    name = SHORT_NAMES.get(method, method)
    return name if has_own_budget(method) else f"{name} {budget}"


def _marked(block: Block, row: int, cell: Cell) -> str:
    if cell is None:
        return "–"
    mean, spread = block.text(cell)
    text = (f"{mean} ± {spread}" if spread else mean).replace("-", "−")
    return f"**{text}**" if block.is_best(row, cell) else text


def _numbers(block: Block, cell: Measured) -> list[object]:
    spread = f"{block.scale * cell.deviation:.4g}" if cell.deviation else ""
    return [f"{block.scale * cell.mean:.8g}", spread]


def _groups(columns: Sequence[Column]) -> Iterator[tuple[str, int]]:
    for method, own in groupby(columns, key=lambda column: column[0]):
        yield method, len(list(own))


def _spans(columns: Sequence[Column]) -> list[str]:
    return [
        rf"\multicolumn{{{count}}}{{c}}{{{tex(SHORT_NAMES.get(method, method))}}}"
        for method, count in _groups(columns)
    ]


def _rules(columns: Sequence[Column], start: int) -> Iterator[str]:
    for _, count in _groups(columns):
        yield rf"\cmidrule(l){{{start}-{start + count - 1}}}"
        start += count


def _budget_heads(columns: Sequence[Column]) -> list[str]:
    return [
        "" if has_own_budget(method) else rf"\multicolumn{{1}}{{c}}{{\scriptsize{{{budget}}}}}"
        for method, budget in columns
    ]


def _latex_rows(table: PaperTable) -> Iterator[str]:
    last = None
    for row, (dataset, model) in enumerate(table.rows):
        if last is not None and dataset != last:
            yield r"\midrule"
        cells = [_tex_cell(block, row, cell) for block in table.blocks for cell in block.cells[row]]
        yield " & ".join([tex(dataset) if dataset != last else "", tex(model), *cells]) + r" \\"
        last = dataset


def _tex_cell(block: Block, row: int, cell: Cell) -> str:
    if cell is None:
        return "--"
    mean, spread = block.text(cell)
    text = mean.replace("-", "$-$")
    if spread:
        text += rf" {{\tiny$\pm${spread}}}"
    return rf"\textbf{{{text}}}" if block.is_best(row, cell) else text
