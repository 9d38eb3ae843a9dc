"""`relook policy`: policy files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.console import print_json
from relook.cli.options import JsonOption
from relook.errors import RelookError
from relook.files import one_line
from relook.policy import Policy
from relook.policy_file import policy_to_json

app = typer.Typer(name="policy", help="Policy files.", no_args_is_help=True, add_completion=False)


@app.callback()
def _policy() -> None:
    """Policy files."""


@app.command("import")
def import_policy(
    file: Annotated[
        Path, typer.Argument(help="A policy that the GPS authors published: .npz or .npy.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write the policy.")] = Path("policy.json"),
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a published GPS policy into a relook policy file."""
    if out.exists() and not force:
        raise RelookError(
            f"{one_line(str(out))} exists: pass --force to write over it, or another --out"
        )
    policy = Policy.from_reference(file)
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
    return f"{len(policy)} {noun} ({distinct} distinct), {kind}{recipe}"
