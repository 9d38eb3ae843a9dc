"""The `relook` command: its verbs, and how errors reach the user."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

import relook
from relook.cli.shared.console import (
    INTERRUPTED,
    TERMINATED,
    USER_ERROR,
    TerminatedError,
    ending_on_sigterm,
    fail,
    say,
)
from relook.cli.verbs import listing
from relook.errors import RelookError, RelookWarning
from relook.io.files import one_line

app = listing(text="Learn which augmented views of an image to average, for a trained classifier.")


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"relook {relook.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Take the options of `relook` itself."""


@contextmanager
def _short_notes() -> Iterator[None]:
    """Print relook's own warnings as one line each."""
    with warnings.catch_warnings():
        original = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            if issubclass(category, RelookWarning):
                say(f"note: {message}")
            else:
                original(message, category, *args, **kwargs)

        warnings.showwarning = show
        yield


def main() -> None:
    """Run the command line; errors that a user can fix are one line on stderr and exit code 2."""
    try:
        with ending_on_sigterm(), _short_notes():
            app()
    except RelookError as error:
        fail(str(error))
        sys.exit(USER_ERROR)
    except OSError as error:  # a full disk, a lost mount: the machine's fault, not ours
        where = "" if error.filename is None else f"{one_line(str(error.filename))}: "
        fail(f"{where}{error.strerror or error}")
        sys.exit(USER_ERROR)
    except MemoryError:
        fail("not enough memory: use fewer images, a smaller --batch or, if available, --memory")
        sys.exit(USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except TerminatedError:
        say("terminated")
        sys.exit(TERMINATED)
