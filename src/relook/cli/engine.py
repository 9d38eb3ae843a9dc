"""The options that say where a model's passes are made, and starting what they ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

import typer

from relook.cli.console import say
from relook.errors import RelookError, unknown_name
from relook.predictions.engines import ENGINES, running_on

_PANEL = "Cluster"

EngineOption = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where the model runs: local, or ray: on the workers of a Ray cluster.",
        rich_help_panel=_PANEL,
    ),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        help="The Ray cluster that this machine belongs to: auto, or HOST:PORT.",
        show_default="a Ray started here",
        rich_help_panel=_PANEL,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        help="The most workers, each with a model of its own.",
        min=1,
        show_default="as many as fit",
        rich_help_panel=_PANEL,
    ),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-worker",
        help="GPUs of each worker; 0.5: two workers share one.",
        min=0.0,
        show_default="1 with --device cuda, else 0",
        rich_help_panel=_PANEL,
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        help="Where predictions are kept: another directory, or s3://BUCKET/PREFIX, gs://…, az://…",
        show_default="the run's directory",
        rich_help_panel=_PANEL,
    ),
]


@dataclass(frozen=True)
class EngineChoice:
    """What the options ask for."""

    engine: str
    address: str | None
    workers: int | None
    gpus_per_worker: float | None
    device: str

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        given = {
            "--address": self.address,
            "--workers": self.workers,
            "--gpus-per-worker": self.gpus_per_worker,
        }
        extra = [option for option, value in given.items() if value is not None]
        if self.engine == "local" and extra:
            raise RelookError(f"{extra[0]} is for a cluster: give --engine ray too")

    @property
    def device_here(self) -> str:
        """Where this process holds the model: beside a cluster, it never runs it."""
        return self.device if self.engine == "local" else "cpu"

    def check(self, *, accelerate: str, dry_run: bool) -> None:
        """Raise where other options do not go with a cluster."""
        if self.engine == "local":
            return
        if dry_run:
            raise RelookError("--dry-run measures on this machine: leave --engine out")
        if accelerate == "auto" and self.device != "cpu":
            raise RelookError(
                "--accelerate auto measures on this machine, not on the workers' "
                f"{self.device}: choose torch or channels-last"
            )

    @contextmanager
    def started(self) -> Iterator[None]:
        """Make the passes within the block where the options say."""
        if self.engine == "local":
            yield
            return
        from relook.predictions.engines.ray import (
            RayEngine,
        )  # Ray is imported only where it is asked for

        engine = RayEngine(
            self.address,
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker or 0,
            device=self.device,
            tell=say,
        )
        with engine, running_on(engine):
            yield
