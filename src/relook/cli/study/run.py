"""`relook study run`: a whole study from one file, then its tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from relook.cli.shared import options
from relook.cli.shared.console import console, print_json, resumable, say
from relook.cli.study.shared import GO_ON, bars
from relook.foundation import wording
from relook.report.tables import new_table
from relook.studies.reproduce.cost import estimated_seconds, passes_of, pool_size
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.plan import Job, make_plan
from relook.studies.reproduce.run import check_parts, is_done, reproduce
from relook.studies.reproduce.settings import PARTS, StudyFile


def run_command(
    file: Annotated[Path, typer.Argument(help="The study, a TOML file.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where tables, figures and the index go; rerun the same command to resume.",
            show_default="runs/NAME",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="In place of what the file says: compare.runs=1, search.pool_size=50 …",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            "--data",
            "-d",
            metavar="NAME=PATH",
            help="Where a data set of the file is: short for --set data.NAME.path=PATH.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PART[,PART]", help=f"Parts, with what they need: {', '.join(PARTS)}."
        ),
    ] = None,
    jobs: Annotated[
        Path | None,
        typer.Option(
            help="Where results are kept; studies that share it share what is done.",
            show_default="jobs in --out",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the jobs and what they cost; run nothing.")
    ] = False,
    device: options.DeviceOption = "cpu",
    timeout: options.TimeoutOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Run a whole study from one file, and write the paper's tables and figures."""
    study = load_study(file, settings=settings or (), data=data or ())
    parts = check_parts(study, options.names(",".join(only)) if only else None)
    target = out or Path("runs") / study.name
    place = jobs or target / "jobs"
    if dry_run:
        _print_plan(study, make_plan(study, parts), place, device, as_json)
        return
    with resumable(GO_ON, timeout), bars() as bar:
        made = reproduce(
            study,
            target,
            jobs=place,
            only=parts,
            device=device,
            started=lambda job, number, total: bar.begin(
                f"[{number}/{total}] {job.title}", "units"
            ),
            report=bar.report,
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
        f"about {wording.duration(sum(known))} left, measured now on {device}"
        if known
        else "the time is not known"
    )
    unknown = len(left) - len(known)
    more = f", and {unknown} jobs whose time is not known" if unknown and known else ""
    console.print(
        f"pools of {pool_size(study):,} candidates; {total}{more}; nothing was run", markup=False
    )
