"""`relook study statistics`: which transforms policies are made of, group by group."""

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

_UNNAMED = "policies"


@expand_options
def statistics_command(
    *,
    policies: list[str] = argument(
        "Policy files or runs, each as GROUP=PATH: randaugment=runs/a randaugment=runs/b "
        "vanilla=runs/c. Without a group: one for all.",
        default=...,
    ),
    views: int | None = option("Count only the entries of the first N views.", min=1),
    out: Path | None = option(
        "A directory for statistics.json and the figure.", panel=options.RESULTS
    ),
    results: study.ResultOptions,
) -> None:
    """Count the transforms of policies and their mean magnitudes, in groups side by side."""
    results.show(STUDY, statistics(read_groups(policies, views)), out)
    if out is None and not results.as_json:
        say("--out DIR  draws them")


def read_groups(specs: Sequence[str], views: int | None = None) -> dict[str, list[Policy]]:
    """Read `GROUP=PATH` or `PATH`, a policy file or a run, several times."""
    groups: dict[str, list[Policy]] = {}
    for spec in specs:
        name, equals, rest = spec.partition("=")
        if Path(spec).exists() or not equals:  # a path may hold = itself
            name, rest = _UNNAMED, spec
        if not name or not rest:
            raise RelookError(f"expected GROUP=PATH or a path, got {one_line(spec)!r}")
        path = Path(rest)
        policy = Policy.load(path / "policy.json" if path.is_dir() else path)
        groups.setdefault(name, []).append(policy if views is None else policy.for_budget(views))
    return groups
