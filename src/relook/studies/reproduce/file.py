"""Study files: TOML, read strictly, with what the command line sets in its place."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.io.files import describe, one_line
from relook.studies.reproduce.checks import check_study
from relook.studies.reproduce.settings import Study, StudyData, StudyModel

_LARGEST_FILE = 1_000_000
_LARGEST_COUNT = 10**15
_NAMED = {"data": StudyData, "models": StudyModel}
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_LISTS = {str: "a list of texts", int: "a list of whole numbers", float: "a list of numbers"}


def load_study(
    path: str | Path, *, settings: Iterable[str] = (), data: Iterable[str] = ()
) -> Study:
    """Read a study from a TOML file.

    `settings` are `KEY=VALUE`, such as `compare.runs=1`: they stand in place of the file's.
    `data` are `NAME=PATH`: short for `data.NAME.path=PATH`, relative to where we are.
    """
    path = Path(path)
    content = _read(path)
    for text in settings:
        _set(content, *_setting(text, "--set"))
    for text in data:
        name, folder = _pair(text, "--data", "NAME=PATH")
        _set_path(content, name, folder, path)
    study = _study(content, path)
    try:
        check_study(study)
    except RelookError as error:
        raise FileFormatError(f"{_shown(path)}: {error}") from None
    return study


def _read(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise FileFormatError(
                f"{_shown(path)}: expected a study of at most {_LARGEST_FILE:,} bytes"
            )
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        if isinstance(error, tomllib.TOMLDecodeError | UnicodeDecodeError):
            raise FileFormatError(f"{_shown(path)}: expected a TOML file: {error}") from None
        reason = getattr(error, "strerror", None) or str(error)
        raise FileFormatError(f"cannot read the study {_shown(path)}: {reason}") from None
    except RecursionError:
        raise FileFormatError(f"{_shown(path)}: expected a TOML file: nested too deeply") from None


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


def _set_path(content: dict[str, Any], name: str, folder: str, path: Path) -> None:
    known = content.get("data")
    if not isinstance(known, dict) or not isinstance(known.get(name), dict):
        raise RelookError(
            f"--data: {unknown_name(f'data set of {_shown(path)}', name, known or ())}"
        )
    known[name]["path"] = str(Path(folder).expanduser().resolve())


def _study(content: dict[str, Any], path: Path) -> Study:
    own = dict(content)
    own.setdefault("name", path.stem)
    found: dict[str, Any] = {"base": path.resolve().parent}
    for key, kind in _NAMED.items():
        tables = own.pop(key, None)
        if not isinstance(tables, dict) or not tables:
            raise _wrong(path, key, f"a table [{key}.NAME] for each", tables)
        found[key] = {
            name: _table(kind, one, path, f"{key}.{name}") for name, one in tables.items()
        }
    study: Study = _table(Study, own, path, "", found)
    return study


def _table(
    kind: type[Any], content: object, path: Path, where: str, made: Mapping[str, Any] | None = None
) -> Any:
    """Build a dataclass of the settings from a table, key by key."""
    if not isinstance(content, dict):
        raise _wrong(path, where, "a table", content)
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind) if one.name not in (made or {})}
    values = dict(made or {})
    for key, value in content.items():
        full = f"{where}.{key}" if where else key
        if key not in known:
            keys = [*known, *(name for name in (made or {}) if name in _NAMED)]
            place = f"{_shown(path)}: [{where}]" if where else _shown(path)
            raise FileFormatError(f"{place}: {unknown_name('key', key, keys)}")
        values[key] = _value(hints[key], value, path, full)
    for name, one in known.items():
        if name not in values and one.default is MISSING and one.default_factory is MISSING:
            full = f"{where}.{name}" if where else name
            raise FileFormatError(f"{_shown(path)}: expected the key {full}, got none")
    return kind(**values)


def _value(hint: Any, value: object, path: Path, where: str) -> Any:
    if is_dataclass(hint):
        return _table(hint, value, path, where)  # type: ignore[arg-type]  # a class, by the hint
    if isinstance(hint, UnionType):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        if not isinstance(value, list) or not all(_is(kind, one) for one in value):
            raise _wrong(path, where, _LISTS[kind], value)
        return tuple(kind(one) for one in value)
    if not _is(hint, value):
        raise _wrong(path, where, _KINDS[hint], value)
    return hint(value)


def _is(kind: type, value: object) -> bool:
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return abs(value) <= sys.float_info.max
    if kind is int:
        return type(value) is int and abs(value) <= _LARGEST_COUNT
    return type(value) is kind


def _wrong(path: Path, where: str, expected: str, got: object) -> FileFormatError:
    shown = "nothing" if got is None else "a table" if isinstance(got, dict) else describe(got)
    if isinstance(got, list):
        shown = one_line(str(got))[:60]
    return FileFormatError(
        f"{_shown(path)}: {where or 'the file'}: expected {expected}, got {shown}"
    )


def _shown(path: Path) -> str:
    return one_line(str(path))
