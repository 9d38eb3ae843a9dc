"""`--latency`: the best views within a time, in the commands that compare and deploy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared.console import say
from relook.evaluation.latency import LATENCY, Latency, Limit
from relook.io.files import one_line

_PANEL = "Latency"


@dataclass(frozen=True)
class LatencyOptions:
    """What a call of the deployed model may take."""

    latency: Annotated[
        str | None,
        typer.Option(
            help="Take the best views whose call is no slower than this, as 40ms: a median, "
            "measured here on the file.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None
    latency_batch: Annotated[
        int,
        typer.Option(help="Images in a call for --latency.", min=1, rich_help_panel=_PANEL),
    ] = 1

    def limit(self) -> Limit | None:
        """Return what was asked for, read."""
        return None if self.latency is None else Limit.read(self.latency, self.latency_batch)


def keep(directory: Path | None, latency: Latency) -> None:
    """Write what was measured into the run, for `relook show` and the report."""
    if directory is not None:
        LATENCY.write(directory / "latency.json", latency)
        say(f"times are kept in {one_line(str(directory / 'latency.json'))}")
