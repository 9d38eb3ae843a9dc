"""`relook policy import`: policies that the paper's authors published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from relook.cli.policy.shared import OutOption, write
from relook.cli.shared.options import JsonOption
from relook.cli.shared.sources import ForceOption, check_free
from relook.policy import Policy


def import_command(
    file: Annotated[
        Path, typer.Argument(help="A policy that the GPS authors published: .npz or .npy.")
    ],
    out: OutOption = Path("policy.json"),
    force: ForceOption = False,
    as_json: JsonOption = False,
) -> None:
    """Turn a published GPS policy into a relook policy file."""
    check_free(out, force)
    write(Policy.from_reference(file), out, as_json)
