"""What a table looks like in a terminal."""

import io

from rich.console import Console

from relook.report.tables import Table, terminal


def printed(table: Table, width: int = 200) -> str:
    """Return the table as a terminal of that width shows it."""
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    console.print(terminal(table, console))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text
