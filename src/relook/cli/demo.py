"""`relook demo`: the whole course of work on embedded data."""

from __future__ import annotations

from pathlib import Path

from relook.api.progress_bars import search_bars
from relook.cli.shared import options
from relook.cli.shared.console import print_json, progress_bar, resumable, say
from relook.cli.shared.option_groups import expand_options, option
from relook.cli.show import print_policy
from relook.policy.file import policy_to_json
from relook.report import write_report
from relook.report.comparison_tables import print_comparison
from relook.studies.demo import run_demo, trained_network


@expand_options
def demo_command(
    *,
    out: Path = option(
        "The demo's directory; rerun the same command to resume.", default=Path("runs/demo")
    ),
    seed: options.SeedOption = 0,
    as_json: options.JsonOption = False,
) -> None:
    """Train a small network on handwritten digits, search, compare, and write the report."""
    with resumable():
        with progress_bar("training a small network", "epochs") as bar:
            model = trained_network(out, seed, bar)
        with search_bars() as progress:
            demo = run_demo(out, model, seed=seed, progress=progress)
        page = write_report(demo.directory)
    if as_json:
        print_json(
            {
                "run": str(demo.directory),
                "report": str(page),
                "policy": policy_to_json(demo.found.policy),
                "comparison": demo.comparison.to_json(),
            }
        )
        return
    print_policy(demo.found.policy)
    print_comparison(demo.comparison)
    say(f"The report is a page to open in a browser: {page}")
