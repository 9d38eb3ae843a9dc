"""What the commands on policy files share: writing one, and saying what it is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.shared.console import print_json
from relook.foundation.wording import at_view_temperature
from relook.io.files import one_line
from relook.policy import Policy
from relook.policy.file import policy_to_json

OutOption = Annotated[Path, typer.Option(help="Where to write the policy.")]


def write(policy: Policy, out: Path, as_json: bool) -> None:
    """Write a policy and say so."""
    policy.save(out)
    if as_json:
        print_json({"out": str(out), "policy": policy_to_json(policy)})
        return
    typer.echo(f"{summary(policy)}, written to {one_line(str(out))}")


def summary(policy: Policy) -> str:
    """Say on one line what a policy is: `9 sub-policies (7 distinct), fresh draws, …`."""
    distinct = len(policy.counts())
    noun = "sub-policy" if len(policy) == 1 else "sub-policies"
    kind = "fixed draws" if policy.is_fixed else "fresh draws"
    recipe = "" if policy.recipe is None else f", recipe {policy.recipe}"
    average = at_view_temperature(policy.view_temperature)
    return f"{len(policy)} {noun} ({distinct} distinct), {kind}{recipe}{average}"
