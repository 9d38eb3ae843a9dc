"""Reading results that relook has saved as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from relook.errors import FileFormatError
from relook.io.files import LARGEST_JSON, read_json

Result = TypeVar("Result")


def load_saved(
    path: str | Path,
    kind: str,
    command: str,
    rebuild: Callable[[Mapping[str, Any]], Result],
    max_bytes: int = LARGEST_JSON,
) -> Result:
    """Read a `kind` of result that a command wrote; `rebuild` is the inverse of `to_json`."""
    content = read_json(path, what=kind, max_bytes=max_bytes)
    try:
        return rebuild(cast(dict[str, Any], content))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(
            f"{path}: expected {kind} written by relook, got something else "
            f"({type(error).__name__}: {error}); run  relook {command}  again"
        ) from None


def check_format(content: Mapping[str, Any], name: str, version: int) -> None:
    """Raise ValueError unless this is a result of that format and version."""
    if content["format"] != name or content["version"] != version:
        raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
