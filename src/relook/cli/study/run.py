"""`relook study run`: a whole study from one file, then its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relook.api.progress_bars import bars_in_turn
from relook.cli.shared import loading, options
from relook.cli.shared.console import (
    ProgressCallback,
    console,
    print_json,
    print_text,
    resumable,
    say,
)
from relook.cli.shared.option_groups import argument, expand_options, option
from relook.foundation import wording
from relook.report.tables import new_table
from relook.studies.reproduce.cost import estimated_seconds, passes_of, pool_size
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.plan import Job, make_plan
from relook.studies.reproduce.run import check_parts, is_done, reproduce
from relook.studies.reproduce.settings import PARTS, StudyFile


@expand_options
def run_command(
    *,
    file: Path = argument("The study, a TOML file.", default=...),
    out: Path | None = option(
        "Directory for tables, figures and the index; rerun the same command to resume.",
        shown="runs/NAME",
    ),
    settings: list[str] | None = option(
        "Override a setting of the file: compare.runs=1, search.pool_size=50 …",
        "--set",
        metavar="KEY=VALUE",
    ),
    data: list[str] | None = option(
        "The location of a data set in the file: short for --set data.NAME.path=PATH.",
        "--data",
        "-d",
        metavar="NAME=PATH",
    ),
    only: list[str] | None = option(
        f"Run only these parts and those they depend on: {', '.join(PARTS)}.",
        metavar="PART[,PART]",
    ),
    jobs: Path | None = option(
        "Directory for the results of jobs; studies can share it.", shown="jobs in --out"
    ),
    dry_run: bool = option(
        "List the jobs and their cost; run nothing.", "--dry-run", default=False
    ),
    device: options.DeviceOption = "cpu",
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run a whole study from one file, and write the paper's tables and figures."""
    study = load_study(file, settings=settings or (), data=data or ())
    parts = check_parts(study, loading.read_names(",".join(only)) if only else None)
    target = out or Path("runs") / study.name
    place = jobs or target / "jobs"
    if dry_run:
        _print_plan(study, make_plan(study, parts), place, device, as_json)
        return
    with resumable(timeout=timeout), bars_in_turn() as bar:
        current: ProgressCallback

        def start(job: Job, number: int, total: int) -> None:
            nonlocal current
            current = bar(number, f"[{number}/{total}] {job.title}", "units")

        def report(done: int, total: int, note: str) -> None:
            current(done, total, note=note)

        made = reproduce(
            study,
            target,
            jobs=place,
            only=parts,
            device=device,
            started=start,
            report=report,
            log=say,
        )
    if as_json:
        content = {"page": str(made.page), "jobs_run": made.run, "jobs_before": made.done_before}
        print_json({**content, "seconds": made.seconds})
        return
    say(f"{made.run} jobs run, {made.done_before} done before, in {wording.duration(made.seconds)}")
    say(f"tables and figures are in {target}; the page to open in a browser: {made.page}")


def _print_plan(
    study: StudyFile, plan: Sequence[Job], place: Path, device: str, as_json: bool
) -> None:
    rows: list[dict[str, Any]] = []
    seconds = estimated_seconds(study, plan, device)
    for job in plan:
        passes = passes_of(job, study)
        rows.append(
            {
                "part": job.part,
                "name": job.name,
                "mark": job.mark[:8],
                "done": is_done(job, place),
                "passes": passes,
                "seconds": seconds.get(job.mark),
            }
        )
    left = [row for row in rows if not row["done"]]
    known = [row["seconds"] for row in left if row["seconds"] is not None]
    if as_json:
        print_json({"jobs": rows, "pool_size": pool_size(study), "estimated_seconds": sum(known)})
        return
    table = new_table(f"{len(rows)} jobs, {len(rows) - len(left)} of them done")
    table.add_column("job")
    for name in ("model passes", "time, about", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            f"{row['part']} {row['name']}",
            "?" if row["passes"] is None else f"{row['passes']:,}",
            "?" if row["seconds"] is None else wording.duration(row["seconds"]),
            "done" if row["done"] else "",
        )
    console.print(table)
    total = (
        f"about {wording.duration(sum(known))} of model passes left, measured now on {device}, and "
        "some seconds a job for the rest"
        if known
        else "the time is not known"
    )
    unknown = len(left) - len(known)
    more = f", and {unknown} jobs whose time is not known" if unknown and known else ""
    print_text(f"pools of {pool_size(study):,} candidates; {total}{more}; nothing was run")
