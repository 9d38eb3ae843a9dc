"""The console that results are printed on, and prose that fits it."""

from __future__ import annotations

import os
import re
import textwrap
from typing import IO

from rich.console import Console, ConsoleDimensions
from rich.style import StyleType
from rich.text import Text

from relook.foundation.wording import facts

_WIDTH = 160
_INDENT = "  "
_JOINED = "\N{NO-BREAK SPACE}"
_COMMAND = re.compile(r"(\S {2})(\S+(?: \S+)*)( {2}|$)", re.MULTILINE)
_WHOLE = re.compile(r"\[[^][\s]+, [^][\s]+\]|(?<=[\d→]) (?=\S)| (?=→)")


class Screen(Console):
    """A console that is wide unless a terminal, a notebook or COLUMNS sets its width."""

    @property
    def size(self) -> ConsoleDimensions:
        """The width and the height."""
        found = super().size
        has_size = self.is_terminal or self.is_jupyter or "COLUMNS" in os.environ
        return found if has_size else ConsoleDimensions(_WIDTH, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size


def is_terminal(file: IO[str] | None) -> bool:
    """Whether a stream is shown on a terminal; unlike Rich's answer, no variable changes this."""
    return file is not None and file.isatty()


def print_prose(console: Console, text: str, style: StyleType = "", *, head: str = "") -> None:
    """Print a text literally, on a terminal wrapped at its width; elsewhere a line stays a line.

    Its first words, `head`, are printed as errors are.
    """
    shown = Text(_fitted(head + text, console), style)
    shown.stylize("bold red", 0, len(head))
    console.print(shown, soft_wrap=True)


def print_facts(console: Console, text: str) -> None:
    """Print a verdict or the like: what it says first in bold, then the reasons, a line each."""
    first, *others = facts(text)
    print_prose(console, first, "bold")
    for one in others:
        print_prose(console, f"{_INDENT}{one}")


def wrapped(text: str, width: int) -> str:
    """Break longer lines at spaces, but not in intervals, before units, or in commands.

    A command is set off by two spaces on each side, as everywhere in relook's messages.
    """
    text = _COMMAND.sub(lambda found: found[1] + found[2].replace(" ", _JOINED) + found[3], text)
    text = _WHOLE.sub(lambda found: found[0].replace(" ", _JOINED), text)
    lines = (_lines(line, width) for line in text.split("\n"))
    return "\n".join(lines).replace(_JOINED, " ")


def _lines(line: str, width: int) -> str:
    """Break a line; the following ones are indented as a list's, if it is itself indented."""
    indent = 2 * _INDENT if line.startswith(_INDENT) else ""
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _fitted(text: str, console: Console) -> str:
    return wrapped(text, console.width) if is_terminal(console.file) else text
