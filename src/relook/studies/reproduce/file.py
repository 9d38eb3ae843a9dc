"""Study files: TOML, read strictly, with what the command line sets in its place."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.files import one_line, read_toml
from relook.io.records import convert
from relook.studies.reproduce.checks import check_study
from relook.studies.reproduce.settings import StudyFile


def load_study(
    path: str | Path, *, settings: Iterable[str] = (), data: Iterable[str] = ()
) -> StudyFile:
    """Read a study from a TOML file.

    `settings` are `KEY=VALUE`, such as `compare.runs=1`: they stand in place of the file's.
    `data` are `NAME=PATH`: short for `data.NAME.path=PATH`, relative to where we are.
    """
    path = Path(path)
    where = one_line(str(path))
    content = read_toml(path, what="a study")
    for text in settings:
        _set(content, *_setting(text, "--set"))
    for text in data:
        name, folder = _pair(text, "--data", "NAME=PATH")
        _set_path(content, name, folder, where)
    absent = {"name": path.stem, "data": None, "models": None}
    study = replace(convert({**absent, **content}, StudyFile, where), base=path.resolve().parent)
    try:
        check_study(study)
    except RelookError as error:
        raise FileFormatError(f"{where}: {error}") from None
    return study


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key.strip() or not equals or not value.strip():
        raise RelookError(f"{option}: expected {form}, got {text!r}")
    return key.strip(), value.strip()


def _setting(text: str, option: str) -> tuple[list[str], Any]:
    """Read `compare.runs=1`; a value that is no TOML is a text."""
    key, value = _pair(text, option, "KEY=VALUE, such as compare.runs=1")
    try:
        parsed: Any = tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        parsed = value
    return _keys(key), parsed


def _keys(text: str) -> list[str]:
    """Split `data."CIFAR 10".path`; TOML knows how."""
    try:
        table: Any = tomllib.loads(f"{text} = 0")
    except tomllib.TOMLDecodeError:
        raise RelookError(f"--set: expected a key such as compare.runs, got {text!r}") from None
    keys = []
    while isinstance(table, dict):
        (key,) = table
        keys.append(key)
        table = table[key]
    return keys


def _set(content: dict[str, Any], keys: list[str], value: Any) -> None:
    table = content
    for key in keys[:-1]:
        inner = table.setdefault(key, {})
        if not isinstance(inner, dict):
            raise RelookError(f"--set {'.'.join(keys)}: {key} is not a table")
        table = inner
    table[keys[-1]] = value


def _set_path(content: dict[str, Any], name: str, folder: str, where: str) -> None:
    known = content.get("data")
    if not isinstance(known, dict) or not isinstance(known.get(name), dict):
        raise RelookError(f"--data: {unknown_name(f'data set of {where}', name, known or ())}")
    known[name]["path"] = str(Path(folder).expanduser().resolve())
