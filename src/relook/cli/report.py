"""`relook report`: a run as one HTML page, and as figures for a paper."""

from __future__ import annotations

from pathlib import Path

import typer

from relook.cli.shared.console import print_json
from relook.cli.shared.option_groups import argument, expand_options, option
from relook.cli.shared.options import JsonOption
from relook.report import write_report


@expand_options
def report_command(
    *,
    run: Path = argument("The run's directory.", default=...),
    out: Path | None = option(
        "Where to write the page.", shown="report.html in the run's directory"
    ),
    figures: bool = option(
        "Also write the figures as SVG and PNG to the run's figures/.", default=True
    ),
    as_json: JsonOption = False,
) -> None:
    """Write a run's report as one self-contained HTML file, and print its path."""
    page = write_report(run, out, figures=figures)
    if as_json:
        drawn = sorted(str(path) for path in (run / "figures").glob("*.*")) if figures else []
        print_json({"page": str(page), "figures": drawn})
    else:
        typer.echo(page)
