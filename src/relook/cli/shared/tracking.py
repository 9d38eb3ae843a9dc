"""`--log`: a run's results in a tracker, from the commands that end with a comparison."""

from __future__ import annotations

from pathlib import Path

from relook.cli.shared.console import say


def check_log(to: str | None) -> None:
    """Raise where a tracker is unknown or not installed, before any work is done."""
    if to is not None:
        from relook.adapters.tracking import check_tracker

        check_tracker(to)


def log_at_end(run: Path, to: str | None) -> None:
    """Log a finished run; what fails is a note."""
    if to is not None:
        from relook.adapters.tracking import log_run

        if log_run(run, to):
            look = {"tensorboard": f"tensorboard --logdir {run / to}", "mlflow": "mlflow ui"}.get(
                to
            )
            say(f"logged to {to}" + (f"; to look at it: {look}" if look else ""))
