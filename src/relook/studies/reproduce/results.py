"""What the finished jobs of a study found, read back from their directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from relook.evaluation.comparison import Comparison, load_comparison
from relook.policy import Policy
from relook.studies.ensembles_result import Ensembles, load_ensembles
from relook.studies.magnitudes_result import Magnitudes, load_magnitudes
from relook.studies.objectives_result import Objectives, load_objectives
from relook.studies.reproduce.plan import Entry, Job
from relook.studies.reproduce.settings import Study
from relook.studies.robustness_result import Robustness, load_robustness
from relook.studies.transfer_result import Transfer, load_transfer

Result = TypeVar("Result")


@dataclass(frozen=True)
class Results:
    """The results of a study by entry; a part that was not run has none."""

    study: Study
    policies: Mapping[Entry, Policy] = field(default_factory=dict)
    comparisons: Mapping[Entry, Comparison] = field(default_factory=dict)
    shifts: Mapping[Entry, Robustness] = field(default_factory=dict)
    objectives: Mapping[Entry, Objectives] = field(default_factory=dict)
    magnitudes: Mapping[Entry, Magnitudes] = field(default_factory=dict)
    ensembles: Mapping[Entry, Ensembles] = field(default_factory=dict)
    transfer: Transfer | None = None


def load_results(study: Study, done: Iterable[Job], jobs: Path) -> Results:
    """Read what the finished jobs `done` left in their directories under `jobs`."""
    finished = list(done)

    def read(part: str, file: str, load: Callable[[Path], Result]) -> dict[Entry, Result]:
        own = [job for job in finished if job.part == part]
        return {job.entry: load(job.directory(jobs) / file) for job in own}

    moved = read("transfer", "transfer.json", load_transfer)
    return Results(
        study,
        policies=read("search", "run/policy.json", Policy.load),
        comparisons=read("compare", "comparison.json", load_comparison),
        shifts=read("robustness", "robustness.json", load_robustness),
        objectives=read("objectives", "objectives.json", load_objectives),
        magnitudes=read("magnitudes", "magnitudes.json", load_magnitudes),
        ensembles=read("ensembles", "ensembles.json", load_ensembles),
        transfer=next(iter(moved.values()), None),
    )
