"""What a table looks like in a terminal, and which files a study draws."""

import io
from pathlib import Path

from rich.console import Console

from relook.evaluation.results import Results
from relook.report.tables import Table, terminal
from relook.studies.study import Study


def printed(table: Table, width: int = 200) -> str:
    """Return the table as a terminal of that width shows it."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    console.print(terminal(table, console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def drawn(study: Study, results: Results, directory: Path) -> list[str]:
    """Draw a study's figures twice, to the same bytes; returns the names without endings."""
    first, again = (study.save_figures(results, directory / one) for one in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert [path.suffix for path in first] == [".svg", ".png"] * (len(first) // 2)
    return [path.stem for path in first[::2]]
