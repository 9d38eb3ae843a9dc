"""The errors that relook raises on purpose, each with a one-line message for people."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import metadata
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

# `warn` skips their frames; torch is between relook's own when a module's forward is called.
_SKIPPED_PACKAGES = ("relook", "torch", "contextlib", "functools")


class RelookError(Exception):
    """An error that a user can correct: the message says expected, got, where and what to do."""


class FileFormatError(RelookError):
    """A file has unexpected content."""


class NotRegisteredError(FileFormatError):
    """A file needs something that the user must register; writing it again would not help."""


class RunError(RelookError):
    """A run directory is in use, belongs to something else, or lacks a part."""


class MissingExtraError(RelookError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs {package}, which is not installed: run  {install_command(extra)}"
        )


class RefusedKeywordError(RelookError):
    """A model does not take the keywords in `names`."""

    def __init__(self, text: str, *names: str) -> None:
        super().__init__(text)
        self.names = names


def install_command(*extras: str) -> str:
    """Return the command that adds extras: from the clone that relook was installed from, if any.

    relook may be on no package index, so its name alone need not lead to it.
    """
    clone = _clone()
    source = "relook" if clone is None else str(clone)
    tested = None if clone is None else clone / "constraints.txt"
    constraints = f"-c '{tested}' " if tested is not None and tested.is_file() else ""
    return f"pip install {constraints}'{source}[{','.join(extras)}]'"


def _clone() -> Path | None:
    from urllib.request import url2pathname  # slow to import

    try:
        text = metadata.distribution("relook").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    origin = json.loads(text or "{}")
    return Path(url2pathname(urlsplit(origin["url"]).path)) if "dir_info" in origin else None


class RelookWarning(UserWarning):
    """Something to know before trusting the results; issued by `warn`."""


def warn(text: str) -> None:
    """Warn at the line of the user's program that called relook, which Python prints below."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while (
        frame is not None
        and str(frame.f_globals.get("__name__")).split(".")[0] in _SKIPPED_PACKAGES
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, RelookWarning, stacklevel=level)


def unknown_name(kind: str, name: object, known: Iterable[str]) -> RelookError:
    """Return the error for an unknown name, with the closest known one as a hint."""
    names = list(known)
    lower = {each.lower(): each for each in names}
    near = get_close_matches(str(name).lower(), lower, n=1)
    hint = f"did you mean {lower[near[0]]!r}?" if near else f"known: {', '.join(names)}"
    return RelookError(f"unknown {kind} {name!r}: {hint}")
