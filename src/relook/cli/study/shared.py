"""What the commands of the studies share: where results go, what is shown."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared import options
from relook.cli.shared.console import console, print_json, say
from relook.errors import MissingExtraError, RelookError
from relook.evaluation.results import Results
from relook.io.files import write_text_atomic
from relook.report.tables import latex as latex_of
from relook.report.tables import terminal
from relook.studies.study import Study

FILES = "Results"
"""Where `--help` lists what a study writes."""

GO_ON = "Run the same command again to go on."


@dataclass(frozen=True)
class ResultOptions:
    """Where a study's tables go, and what is printed."""

    as_csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            help="Write every number to this file, as one tidy table (.parquet: as Parquet).",
            rich_help_panel=FILES,
        ),
    ] = None
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables to this file.", rich_help_panel=FILES)
    ] = None
    latex: Annotated[
        Path | None,
        typer.Option(help="Write a table like the paper's to this file.", rich_help_panel=FILES),
    ] = None
    figures: Annotated[
        bool, typer.Option(help="Draw the figures, as SVG and PNG.", rich_help_panel=FILES)
    ] = True
    as_json: options.JsonOption = False

    def show(
        self, study: Study, results: Results, out: Path | None, files: Sequence[str] = ()
    ) -> None:
        """Write results, tables and figures, and print them.

        `out` gets NAME.json and figures/; `files` are others that stand there already.
        """
        drawn: list[Path] = []
        if out is not None:
            results.save(out / f"{study.name}.json")
            drawn = self._drawn(study, results, out) if self.figures else []
        if self.as_csv is not None and self.as_csv.suffix == ".parquet":
            results.save(self.as_csv)
        elif self.as_csv is not None:
            write_text_atomic(self.as_csv, results.to_csv())
        if self.markdown is not None:
            write_text_atomic(self.markdown, study.markdown(results))
        if self.latex is not None and study.latex is not None:
            write_text_atomic(self.latex, latex_of(study.latex(results)))
        for method, reason in results.settings.get("left_out", {}).items():
            say(f"left out: {method}: {reason}")
        if self.as_json:
            names = [str(path) for path in drawn]
            print_json(
                {"out": None if out is None else str(out), "figures": names, **results.to_json()}
            )
            return
        for table in (study.brief or study.tables)(results):
            console.print(terminal(table, console))
        if out is not None:
            there = [f"{study.name}.json", *files, *(["figures/"] if drawn else [])]
            say(f"written to {out}: {', '.join(there)}")
        if results.sentence:
            console.print(results.sentence, soft_wrap=True, markup=False, style="bold")

    def _drawn(self, study: Study, results: Results, out: Path) -> list[Path]:
        try:
            return study.save_figures(results, out / "figures")
        except MissingExtraError as error:
            say(f"no figures: {error}")
            return []


def command() -> str:
    """Return the command as it was typed."""
    return shlex.join(["relook", *sys.argv[1:]])


def check_draws(draws: str) -> None:
    """Raise unless these are draws that there are."""
    if draws not in ("fixed", "fresh"):
        raise RelookError(f"--draws: expected fixed or fresh, got {draws!r}")
