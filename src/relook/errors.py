"""The errors that relook raises on purpose: one line each, for people to read."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from types import FrameType

_BETWEEN = ("relook", "torch", "contextlib", "functools")  # torch calls the forward of a module


class RelookError(Exception):
    """Something a user can correct: the message says expected, got, where and what to do."""


class FileFormatError(RelookError):
    """A file from outside does not hold what it should."""


class NotRegisteredError(FileFormatError):
    """A file needs what a user registers: to write it again would not help."""


class RunError(RelookError):
    """A run directory is in use, belongs to something else, or lacks a part."""


class MissingExtraError(RelookError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed: run  pip install 'relook[{extra}]'"
        )


class RefusedKeywordError(RelookError):
    """A model does not take the keywords in `names`."""

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text)
        self.names = names


class RelookWarning(UserWarning):
    """What a reader of the results should know; see `warn`."""


def warn(text: str) -> None:
    """Warn at the line of the user's program that led here, which Python shows below the text."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in _BETWEEN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RelookWarning, stacklevel=level)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> RelookError:
    """Build the error for a name that is in no table, with the nearest known one."""
    names = list(known)
    lower = {one.lower(): one for one in names}
    near = get_close_matches(str(name).lower(), lower, n=1)
    hint = f"did you mean {lower[near[0]]!r}?" if near else f"known: {', '.join(names)}"
    return RelookError(f"unknown {kind} {name!r}: {hint}")
