"""The options that say where a model's passes are made, and starting what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from relook.cli.shared.console import say
from relook.errors import RelookError, unknown_name
from relook.predictions.engines import ENGINES, running_on

_of_cluster: Callable[..., Any] = partial(typer.Option, rich_help_panel="Cluster")


@dataclass(frozen=True)
class EngineOptions:
    """Where the passes are made, and where their predictions are kept."""

    engine: Annotated[
        str,
        _of_cluster(help="Where the model runs: local, or ray: on the workers of a Ray cluster."),
    ] = "local"
    address: Annotated[
        str | None,
        _of_cluster(
            help="The Ray cluster that this machine belongs to: auto, or HOST:PORT.",
            show_default="a Ray started here",
        ),
    ] = None
    workers: Annotated[
        int | None,
        _of_cluster(
            help="The most workers, each with a model of its own.",
            min=1,
            show_default="as many as fit",
        ),
    ] = None
    gpus_per_worker: Annotated[
        float | None,
        _of_cluster(
            help="GPUs of each worker; 0.5: two workers share one.",
            min=0.0,
            show_default="1 with --device cuda, else 0",
        ),
    ] = None
    store: Annotated[
        str | None,
        _of_cluster(
            metavar="PATH|URL",
            help="Where predictions are kept: another directory, or s3://BUCKET/PREFIX, gs://…, "
            "az://…",
            show_default="the run's directory",
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise unknown_name("engine", self.engine, ENGINES)
        for name in ("address", "workers", "gpus_per_worker"):
            if self.engine == "local" and getattr(self, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise RelookError(f"{option} is for a cluster: give --engine ray too")

    def device_here(self, device: str) -> str:
        """Return where this process holds the model: alongside a cluster, it never runs it."""
        return device if self.engine == "local" else "cpu"

    def check(self, dry_run: bool) -> None:
        """Raise where another option does not go with a cluster."""
        if dry_run and self.engine != "local":
            raise RelookError("--dry-run measures on this machine: leave --engine out")

    @contextmanager
    def started(self, device: str) -> Iterator[None]:
        """Make the passes within the block where the options say."""
        if self.engine == "local":
            yield
            return
        from relook.predictions.engines.ray import RayEngine  # Ray is heavy

        engine = RayEngine(
            self.address,
            workers=self.workers,
            gpus_per_worker=self.gpus_per_worker or 0,
            device="cpu" if device == "auto" else device,  # what is here says nothing of workers
            log=say,
        )
        with engine, running_on(engine):
            yield
