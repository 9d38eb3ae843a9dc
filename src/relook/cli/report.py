"""`relook report`: a run as one HTML page to open, and as figures for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared.console import print_json
from relook.report import write_report


def report_command(
    run: Annotated[Path, typer.Argument(help="The run's directory.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the page (default: report.html in the run's directory)."),
    ] = None,
    figures: Annotated[
        bool, typer.Option(help="Write the figures as SVG and PNG too, into the run's figures/.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON instead of a line.")
    ] = False,
) -> None:
    """Write a run's report, one HTML file that needs no network; prints its path."""
    page = write_report(run, out, figures=figures)
    if as_json:
        drawn = sorted(str(path) for path in (run / "figures").glob("*.*")) if figures else []
        print_json({"page": str(page), "figures": drawn})
    else:
        typer.echo(page)
