"""`relook policy freeze`: a policy of fresh draws becomes one of fixed views."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.policy.shared import OutOption, write
from relook.cli.shared.console import say
from relook.cli.shared.options import JsonOption, SeedOption
from relook.cli.shared.sources import ForceOption, check_free
from relook.errors import RelookError
from relook.io.files import one_line
from relook.policy import Policy


def freeze_command(
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
    write(policy.freeze(seed), out, as_json)
    say("it has no temperatures: fit them with  relook calibrate")
