"""The `relook` command: its verbs, and how errors reach the user."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.markup import escape

import relook
from relook.cli.console import INTERRUPTED, messages
from relook.cli.verbs import VERBS, Verb, VerbGroup
from relook.errors import RelookError

USER_ERROR = 2

app = typer.Typer(
    name="relook",
    cls=VerbGroup,
    help="Learn which augmented views of an image to average, for a trained classifier.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relook {relook.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Learn which augmented views of an image to average, for a trained classifier."""


def _register(verb: Verb) -> None:
    @app.command(verb.name, help=verb.help, rich_help_panel=verb.panel)
    def listed() -> None:
        """Stand in the list of verbs; VerbGroup runs the verb's own command instead."""


for _verb in VERBS.values():
    _register(_verb)


def main() -> None:
    """Run the command line; a RelookError is one line on stderr and exit code 2."""
    try:
        app()
    except RelookError as error:
        messages.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
