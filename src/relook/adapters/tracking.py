"""A finished run in MLflow, TensorBoard or Weights & Biases: settings, metrics, verdict, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from relook.errors import MissingExtraError, RelookError, unknown_name, warn
from relook.foundation.wording import first_line, views_text
from relook.report.comparison_tables import shown_rows
from relook.report.page import write_report
from relook.report.run_files import RunFiles, read_run

METRICS = ("cll", "accuracy", "log_likelihood", "brier_calibrated", "ece_calibrated", "temperature")
"""The metrics logged for every method at every number of views, besides its slowdown."""

PROJECT = "relook"
_LONGEST = 250


@dataclass(frozen=True)
class Logged:
    """The logged parts of a run: settings, metrics by number of views, verdict and report."""

    name: str
    path: Path
    settings: Mapping[str, str]
    metrics: Sequence[tuple[str, int, float]]
    verdict: Mapping[str, str]
    report: Path | None


def log_run(run: str | Path, to: str) -> bool:
    """Log a finished run to "mlflow", "tensorboard" or "wandb"; return whether it succeeded.

    The library's own settings decide where it goes (MLFLOW_TRACKING_URI, WANDB_MODE …);
    TensorBoard's events go into the run's directory. A failure is only a warning: the run is not
    affected.
    """
    check_tracker(to)
    try:
        TRACKERS[to](_logged(read_run(Path(run))))
    except Exception as error:  # a tracker's server, disk or login may fail in many ways
        warn(f"nothing was logged to {to}: {type(error).__name__}: {first_line(error)}")
        return False
    return True


def check_tracker(name: str) -> None:
    """Raise if a tracker is unknown or not installed; called before a run starts."""
    if name not in TRACKERS:
        raise unknown_name("tracker", name, TRACKERS)
    if find_spec(name) is None:
        raise MissingExtraError(name, name, "logging")


def _logged(run: RunFiles) -> Logged:
    comparison = run.comparison
    metrics = []
    for row in shown_rows(comparison.learned_averages or comparison) if comparison else ():
        found = {name: row.metrics[name].mean for name in METRICS if name in row.metrics}
        if row.over_plain and "cll" in row.over_plain:
            found["cll_over_plain"] = row.over_plain["cll"].estimate
        found["slowdown"] = row.slowdown
        metrics += [(f"{row.method}/{name}", row.views, value) for name, value in found.items()]
    verdict = {}
    if comparison is not None:
        one = comparison.verdict
        recommended = f"{one.recommended_method}, {views_text(one.recommended_views)}"
        verdict = {"outcome": one.outcome, "recommended": recommended, "sentence": one.sentence}
    settings = {name: value[:_LONGEST] for name, value in run.settings()}
    return Logged(run.name, run.path, settings, metrics, verdict, _report(run))


def _report(run: RunFiles) -> Path | None:
    try:
        return write_report(run.path, figures=False)
    except RelookError as error:
        warn(f"no report is logged: {error}")
        return None


def _to_mlflow(run: Logged) -> None:
    mlflow: Any = import_module("mlflow")
    with mlflow.start_run(run_name=run.name):
        mlflow.log_params({_plain_name(name): value for name, value in run.settings.items()})
        mlflow.set_tags({f"verdict.{name}": value for name, value in run.verdict.items()})
        for name, views, value in run.metrics:
            mlflow.log_metric(name, value, step=views)
        if run.report is not None:
            mlflow.log_artifact(str(run.report))


def _to_tensorboard(run: Logged) -> None:
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter
    with writer(str(run.path / "tensorboard")) as log:
        for name, views, value in run.metrics:
            log.add_scalar(name, value, views)
        for title, content in (("verdict", run.verdict), ("settings", run.settings)):
            lines = (f"| {name} | {value.replace('|', ' ')} |" for name, value in content.items())
            log.add_text(title, "\n".join(("| | |", "| --- | --- |", *lines)))
        if run.report is not None:  # TensorBoard has no artefacts
            log.add_text("report", str(run.report.resolve()))


def _to_wandb(run: Logged) -> None:
    wandb: Any = import_module("wandb")
    with wandb.init(project=PROJECT, name=run.name, config=dict(run.settings)) as log:
        log.define_metric("views")
        log.define_metric("*", step_metric="views")
        for views in sorted({views for _, views, _ in run.metrics}):
            found = {name: value for name, at, value in run.metrics if at == views}
            log.log({"views": views, **found})
        log.summary.update({f"verdict/{name}": value for name, value in run.verdict.items()})
        if run.report is not None:
            artefact = wandb.Artifact("report", type="report")
            artefact.add_file(str(run.report))
            log.log_artifact(artefact)


def _plain_name(name: str) -> str:
    """Return a name with only the characters that MLflow allows."""
    return "".join(one if one.isalnum() or one in "_-./ " else "_" for one in name)[:_LONGEST]


TRACKERS: Mapping[str, Callable[[Logged], None]] = MappingProxyType(
    {"mlflow": _to_mlflow, "tensorboard": _to_tensorboard, "wandb": _to_wandb}
)
"""The functions that log a run, by the name of the package, which is also its extra's."""
