"""Run a whole study from one file: its jobs, each once, then the paper's tables and figures."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from relook.errors import RelookError, unknown_name
from relook.evaluation.results import Results
from relook.foundation.wording import count
from relook.io.files import read_json, write_json_atomic
from relook.io.run_directory import RunDirectory
from relook.policy_search.run_record import versions
from relook.studies.reproduce.inputs import DONE, STORE, JobInputs, Loaded, Report, ignore_progress
from relook.studies.reproduce.jobs import RUNNERS, results_file
from relook.studies.reproduce.page import read_results, study_sections, write_study
from relook.studies.reproduce.plan import Job, make_plan
from relook.studies.reproduce.settings import PARTS, StudyFile

FORMAT = "relook-study-job"
SETTINGS = "settings.json"

Started = Callable[[Job, int, int], None]
"""Called before a job is run, with the job, its number and the number of jobs."""


@dataclass(frozen=True)
class Reproduction:
    """A finished study: its page, and how many jobs were run now or had been done before."""

    page: Path
    run: int
    done_before: int
    seconds: float


def reproduce(
    study: StudyFile,
    out: str | Path,
    *,
    jobs: str | Path | None = None,
    only: Iterable[str] | None = None,
    device: str = "cpu",
    started: Started | None = None,
    report: Report = ignore_progress,
    log: Callable[[str], None] | None = None,
) -> Reproduction:
    """Run the unfinished jobs of a study, and write its tables, figures and index into `out`.

    Each job has a directory under `jobs` (default: `out/jobs`), named by everything that its
    result depends on, with a record that is written last. So the same call resumes, a changed
    setting reruns only the jobs that depend on it, and studies with the same `jobs` share results.
    `only` names parts; jobs that they depend on are run too.
    """
    out = Path(out)
    place = out / "jobs" if jobs is None else Path(jobs)
    plan = make_plan(study, check_parts(study, only))
    start, run = time.perf_counter(), 0
    with RunDirectory(out), RunDirectory(place):
        loaded = Loaded()
        for number, job in enumerate(plan, 1):
            if is_done(job, place):
                shutil.rmtree(job.directory(place) / STORE, ignore_errors=True)
                continue
            if started is not None:
                started(job, number, len(plan))
            run_job(JobInputs(job, study, place, device, log, report, loaded))
            run += 1
        page = _write_page(study, out, place)
    return Reproduction(page, run, len(plan) - run, time.perf_counter() - start)


def check_parts(study: StudyFile, only: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the requested parts; raises if the study does not have them."""
    if only is None:
        return None
    parts = tuple(only)
    for part in parts:
        if part not in PARTS:
            raise unknown_name("part", part, PARTS)
        if part not in study.parts:
            raise RelookError(
                f"--only: the study has no part {part!r}, only {', '.join(study.parts)}"
            )
    return parts


def run_job(inputs: JobInputs) -> None:
    """Run a job in its directory; its record is written last."""
    job, directory = inputs.job, inputs.directory
    record = {"format": FORMAT, "mark": job.mark, "part": job.part, "settings": dict(job.settings)}
    write_json_atomic(directory / SETTINGS, record)
    start = time.perf_counter()
    try:
        made = RUNNERS[job.part](inputs)
    except RelookError as error:
        raise RelookError(f"{job.title}: {error}") from error
    if isinstance(made, Results):
        made.save(directory / results_file(job.part))
        made = (results_file(job.part),)
    content = {
        "format": FORMAT,
        "mark": job.mark,
        "files": list(made),
        "used": inputs.used,
        "seconds": round(time.perf_counter() - start, 3),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
    }
    write_json_atomic(directory / DONE, content)
    shutil.rmtree(directory / STORE, ignore_errors=True)  # needed only while the job ran


def is_done(job: Job, jobs: Path) -> bool:
    """Whether a job's record is there, and every file that it names."""
    directory = job.directory(jobs)
    try:
        content: Any = read_json(directory / DONE, what="the record of a finished job")
        files = content["files"]
        return content["mark"] == job.mark and all((directory / name).is_file() for name in files)
    except (RelookError, KeyError, TypeError):
        return False


def _write_page(study: StudyFile, out: Path, jobs: Path) -> Path:
    """Write the results of all finished jobs of the study."""
    whole = make_plan(study)
    done = [job for job in whole if is_done(job, jobs)]
    missing = len(whole) - len(done)
    results = read_results(study, done, jobs)
    return write_study(
        study_sections(results), study.title or study.name, _facts(study, missing), out
    )


def _facts(study: StudyFile, missing: int) -> list[str]:
    """Return a few lines about the settings of the study, and whether it is finished."""
    models, data = ", ".join(study.models), ", ".join(study.data)
    search = study.search
    facts = [
        f"Models: {models}. Data: {data}. Recipe: {study.views.name}, seed {study.seed}.",
        f"Policies of {search.length} entries, strategy {search.strategy}; "
        f"{count(study.compare.runs, 'run')} of everything random.",
    ]
    if len(study.given) < len(study.models):
        trainings = " and ".join(study.train.augments)
        facts.append(f"Networks trained for {count(study.train.epochs, 'epoch')} with {trainings}.")
    if missing:
        facts.append(f"Unfinished: {count(missing, 'job')} of the study still to do.")
    return facts
