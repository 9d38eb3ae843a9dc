"""Records: frozen dataclasses as JSON files with a format and a version, read strictly.

msgspec builds the values and finds what does not fit; this module writes the error messages.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from relook.errors import FileFormatError, NotRegisteredError, RelookError, unknown_name
from relook.io.files import (
    LARGEST_JSON,
    describe,
    json_text,
    one_line,
    read_json,
    shown_key,
    write_json_atomic,
)

T = TypeVar("T")

_CHECKSUM = "crc32"
_MOST_BITS = 64
_PLACE = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_MISSING_KEY = re.compile("Object missing required field `(.+)`")
_TYPE_NAMES: Mapping[Any, tuple[str, str]] = {
    str: ("a text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "truth values"),
    bytes: ("base64", "base64 texts"),
}


@dataclass(frozen=True)
class Form:
    """Converts a value to JSON-able data and back; `from_json` gets the place for its errors."""

    to_json: Callable[[Any], object]
    from_json: Callable[[object, str], object]


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of file: its dataclass, format and version, and `what` messages call it.

    `version` is None if the files have none; versions from `oldest` on are read (default: only
    `version`). `command` is the relook command that writes them. With a `checksum`, damage to any
    bit is found. If `partly`, the file may have keys that the dataclass does not have. `forms` has
    the fields with a JSON form of their own.
    """

    holds: type[T]
    format: str
    version: int | None
    what: str
    command: str | None = None
    checksum: bool = False
    partly: bool = False
    forms: Mapping[str, Form] = field(default_factory=dict)
    oldest: int | None = None

    def write(self, path: str | Path, value: T) -> None:
        """Write a record atomically."""
        write_json_atomic(path, self.to_json(value))

    def read(self, path: str | Path, *, max_bytes: int = LARGEST_JSON) -> T:
        """Read a record; a FileFormatError says in one line what is wrong with it, and where."""
        content = read_json(path, what=self.what, max_bytes=max_bytes)
        return self.from_json(content, one_line(str(path)))

    def to_json(self, value: T) -> dict[str, Any]:
        """Return the record as JSON-able data."""
        version = {} if self.version is None else {"version": self.version}
        fields = msgspec.to_builtins(value, str_keys=True, enc_hook=_builtin)
        content = {"format": self.format, **version, **fields}
        content |= {name: form.to_json(getattr(value, name)) for name, form in self.forms.items()}
        return {**content, _CHECKSUM: checksum(content)} if self.checksum else content

    def from_json(self, content: object, where: str) -> T:
        """Build the record from JSON-able data; errors begin with `where`."""
        try:
            checked = self._checked(content, where)
            for name in self.forms.keys() & checked.keys():
                checked[name] = self.forms[name].from_json(checked[name], f"{where}: {name}")
            return convert(checked, self.holds, where, partly=self.partly)
        except NotRegisteredError:
            raise
        except FileFormatError as error:
            again = "" if self.command is None else f"; run  relook {self.command}  again"
            raise FileFormatError(f"{error}{again}") from None

    def _checked(self, content: object, where: str) -> dict[str, Any]:
        """Check format, version and checksum; return the content without them."""
        found = content.get("format") if isinstance(content, dict) else content
        if not isinstance(content, dict) or found != self.format:
            _fail(
                where,
                "",
                f'expected {self.what} ("format": "{self.format}"), got {describe(found)}',
            )
        if self.version is not None:
            oldest = self.version if self.oldest is None else self.oldest
            _check_version(content.get("version"), oldest, self.version, where)
        rest = {key: value for key, value in content.items() if key != _CHECKSUM}
        if self.checksum and content.get(_CHECKSUM) != checksum(rest):
            _fail(where, "", f"expected {self.what} with its checksum, got a damaged one")
        return {key: value for key, value in rest.items() if key not in ("format", "version")}


def _builtin(value: object) -> object:
    """Convert what msgspec cannot: read-only mappings and NumPy's float64."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"cannot write a {type(value).__name__} as JSON: {value!r}")


def _check_version(found: object, oldest: int, known: int, where: str) -> None:
    wanted = " or ".join(map(str, range(oldest, known + 1)))
    if type(found) is not int or found < 1:
        _fail(where, "version", f"expected the number {wanted}, got {describe(found)}")
    if not oldest <= found <= known:
        newer = ", written by a newer relook: upgrade relook to read it" if found > known else ""
        _fail(where, "", f"expected version {wanted}, got version {describe(found)}{newer}")


def checksum(content: Mapping[str, Any]) -> int:
    """Return the CRC-32 of JSON-able content as written to a file."""
    return zlib.crc32(json_text(content).encode("utf-8", "surrogatepass"))


def convert(content: object, kind: type[T], where: str, *, partly: bool = False) -> T:
    """Build a `kind` from JSON or TOML data, strictly; errors begin with `where` and the place.

    The content may contain ready dataclasses. `msgspec.Meta(description=…)` overrides how messages
    describe a type.
    """
    try:
        value: T = msgspec.convert(content, kind, from_attributes=True)
    except msgspec.ValidationError as error:
        _fail(where, *_mismatch(error, content, kind))
    except RelookError as error:
        _fail(where, "", str(error))
    for place, problem in _excess(content, kind, "", partly):
        _fail(where, place, problem)
    return value


def _fail(where: str, place: str, problem: str) -> NoReturn:
    """Raise an error about a place within a file, such as `.steps[3].pick` (empty: the whole)."""
    inside = place.removeprefix(".")
    raise FileFormatError(": ".join(part for part in (where, inside, problem) if part)) from None


def _mismatch(error: msgspec.ValidationError, content: Any, hint: Any) -> tuple[str, str]:
    """Return the place where the content does not fit, and the problem."""
    text, _, path = str(error).partition(" - at `$")
    place = ""
    for name, index in _PLACE.findall(path):
        hint = _bare_type(hint)
        if name:
            hint, content = _field_types(hint)[name], content[name]
        elif index == "...":  # msgspec does not say which key
            hint = get_args(hint)[1]
            name, content = next(item for item in content.items() if not _fits(item[1], hint))
        else:
            hint, content = get_args(hint)[0], content[int(index)]
        place += f".{shown_key(name)}" if name else f"[{index}]"
    missing = _MISSING_KEY.fullmatch(text)
    if missing:
        return place, f'expected the key "{missing[1]}", got none'
    if error.__cause__ is not None:
        return place, text
    return place, f"expected {_expectation(hint)}, got {describe(content)}"


def _fits(content: object, hint: Any) -> bool:
    try:
        msgspec.convert(content, hint, from_attributes=True)
    except msgspec.ValidationError:
        return False
    return True


def _excess(content: Any, hint: Any, place: str, partly: bool) -> Iterator[tuple[str, str]]:
    """Yield unknown keys and huge integers, which msgspec accepts, as (place, problem)."""
    whole, hint = hint, _bare_type(hint)
    if hint is int and content is not None and content.bit_length() > _MOST_BITS:
        yield place, f"expected {_expectation(whole)}, got {describe(content)}"
    elif isinstance(content, list | tuple) and get_origin(hint) is tuple:
        item = get_args(hint)[0]
        if _bare_type(item) not in (str, float, bool):
            for i, entry in enumerate(content):
                yield from _excess(entry, item, f"{place}[{i}]", False)
    elif isinstance(content, dict):
        known, others = _field_types(hint), (get_args(hint) or (str, Any))[1]
        for key, value in content.items():
            if known and key not in known:
                if not partly:
                    # Finding the nearest name takes time that grows with its length.
                    yield place, str(unknown_name("key", key[:60], known))
            else:
                yield from _excess(
                    value, known.get(key, others), f"{place}.{shown_key(key)}", False
                )


def _bare_type(hint: Any) -> Any:
    """Return a type without its annotations and without None."""
    if get_origin(hint) is Annotated:
        return _bare_type(get_args(hint)[0])
    members = [t for t in get_args(hint) if t not in (NoneType, msgspec.UnsetType)]
    return _bare_type(members[0]) if _is_union(hint) and len(members) == 1 else hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, type(int | None))


@cache
def _field_types(kind: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name; empty for other types."""
    if not (isinstance(kind, type) and (is_dataclass(kind) or issubclass(kind, msgspec.Struct))):
        return {}
    return get_type_hints(kind, include_extras=True)


def _expectation(hint: Any) -> str:
    for member in (hint, *(get_args(hint) if _is_union(hint) else ())):
        for meta in getattr(member, "__metadata__", ()):
            if getattr(meta, "description", None):
                return str(meta.description)
    hint = _bare_type(hint)
    if hint in _TYPE_NAMES:
        return _TYPE_NAMES[hint][0]
    if get_origin(hint) is Literal:
        return " or ".join(str(choice) for choice in get_args(hint))
    if get_origin(hint) is tuple:
        items = _TYPE_NAMES.get(_bare_type(get_args(hint)[0]))
        return f"a list of {items[1]}" if items else "a list"
    known = _field_types(hint)
    return f"an object with {', '.join(known)}" if known else "an object"
