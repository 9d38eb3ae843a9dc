"""Reading what a study has saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

from relook.errors import FileFormatError
from relook.files import read_json

Result = TypeVar("Result")


def load_saved(
    path: str | Path, study: str, rebuild: Callable[[Mapping[str, Any]], Result]
) -> Result:
    """Read a study's JSON file; `study` is its command, `rebuild` the inverse of `to_json`."""
    content = read_json(path, what=f"a study of {study}")
    try:
        return rebuild(cast(dict[str, Any], content))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileFormatError(
            f"{path}: expected a study written by relook, got something else "
            f"({type(error).__name__}: {error}); run  relook {study}  again"
        ) from None


def check_format(content: Mapping[str, Any], name: str, version: int) -> None:
    """Raise ValueError unless this is a study of that format and version."""
    if content["format"] != name or content["version"] != version:
        raise ValueError(f"format {content['format']!r}, version {content['version']!r}")
