"""What the finished jobs of a study found, read back from their directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from relook.evaluation.comparison import load_comparison
from relook.evaluation.results import Results, load_results
from relook.policy import Policy
from relook.studies.reproduce.plan import Entry, Job
from relook.studies.reproduce.settings import StudyFile

SCORED = ("robustness", "objectives", "magnitudes", "ensembles", "transfer")
"""The parts whose jobs leave results of a study."""

Found = TypeVar("Found")


@dataclass(frozen=True)
class StudyResults:
    """The policies, and the results of each part, by entry; a part that was not run has none."""

    study: StudyFile
    policies: Mapping[Entry, Policy] = field(default_factory=dict)
    parts: Mapping[str, Mapping[Entry, Results]] = field(default_factory=dict)

    def of(self, part: str) -> Mapping[Entry, Results]:
        """Return what a part found."""
        return self.parts.get(part, {})


def read_results(study: StudyFile, done: Iterable[Job], jobs: Path) -> StudyResults:
    """Read what the finished jobs `done` left in their directories under `jobs`."""
    finished = list(done)

    def read(part: str, load: Callable[[Path], Found]) -> dict[Entry, Found]:
        own = [job for job in finished if job.part == part]
        return {job.entry: load(job.directory(jobs)) for job in own}

    def load_part(part: str) -> Callable[[Path], Results]:
        return lambda directory: load_results(directory / f"{part}.json", part)

    return StudyResults(
        study,
        read("search", lambda directory: Policy.load(directory / "run" / "policy.json")),
        {
            "compare": read("compare", lambda d: load_comparison(d / "comparison.json").results()),
            **{part: read(part, load_part(part)) for part in SCORED},
        },
    )
