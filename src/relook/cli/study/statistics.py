"""`relook study statistics`: the transforms that policies are made of, group by group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from relook.cli.shared import options
from relook.cli.shared.console import say
from relook.cli.shared.option_groups import argument, expand_options, option
from relook.cli.study import shared as study
from relook.errors import RelookError
from relook.io.files import one_line
from relook.policy import Policy
from relook.studies.statistics import STUDY, statistics

_DEFAULT_GROUP = "policies"


@expand_options
def statistics_command(
    *,
    policies: list[str] = argument(
        "Policy files or runs, each as GROUP=PATH: randaugment=runs/a randaugment=runs/b "
        "vanilla=runs/c. Without GROUP=, they form one group.",
        default=...,
    ),
    views: int | None = option("Count only the entries of the first N views.", min=1),
    out: Path | None = option(
        "Directory for statistics.json and the figure.", panel=options.RESULTS
    ),
    results: study.ResultOptions,
) -> None:
    """Compare groups of policies: how often and how strongly they use each transform."""
    results.show(STUDY, statistics(read_groups(policies, views)), out)
    if out is None and not results.as_json:
        say("--out DIR  also draws a figure")


def read_groups(specs: Sequence[str], views: int | None = None) -> dict[str, list[Policy]]:
    """Load the policies of each `GROUP=PATH` or `PATH`, a policy file or a run."""
    groups: dict[str, list[Policy]] = {}
    for spec in specs:
        name, equals, rest = spec.partition("=")
        if Path(spec).exists() or not equals:  # a path may hold = itself
            name, rest = _DEFAULT_GROUP, spec
        if not name or not rest:
            raise RelookError(f"expected GROUP=PATH or a path, got {one_line(spec)!r}")
        path = Path(rest)
        policy = Policy.load(path / "policy.json" if path.is_dir() else path)
        groups.setdefault(name, []).append(policy if views is None else policy.for_budget(views))
    return groups
