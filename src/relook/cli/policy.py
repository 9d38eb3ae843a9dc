"""`relook policy`: policy files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.console import print_json, say
from relook.cli.options import JsonOption, SeedOption
from relook.cli.sources import ForceOption, check_free
from relook.errors import RelookError
from relook.io.files import one_line
from relook.policy import Policy
from relook.policy.file import policy_to_json

app = typer.Typer(name="policy", help="Policy files.", no_args_is_help=True, add_completion=False)


@app.callback()
def _policy() -> None:
    """Policy files."""


OutOption = Annotated[Path, typer.Option(help="Where to write the policy.")]


@app.command("import")
def import_policy(
    file: Annotated[
        Path, typer.Argument(help="A policy that the GPS authors published: .npz or .npy.")
    ],
    out: OutOption = Path("policy.json"),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a published GPS policy into a relook policy file."""
    check_free(out, force)
    _write(Policy.from_reference(file), out, as_json)


@app.command("freeze")
def freeze_policy(
    file: Annotated[Path, typer.Argument(help="A policy of fresh draws.")],
    out: OutOption = Path("frozen.json"),
    seed: SeedOption = 0,
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Draw signs, places and flips once, for all images; what exported models run.

    The temperatures were those of other views and are dropped: fit them with relook calibrate.
    """
    check_free(out, force)
    policy = Policy.load(file)
    if policy.is_fixed:
        raise RelookError(
            f"{one_line(str(file))}: expected a policy of fresh draws, got fixed ones"
        )
    _write(policy.freeze(seed), out, as_json)
    say("it has no temperatures: fit them with  relook calibrate")


def _write(policy: Policy, out: Path, as_json: bool) -> None:
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
