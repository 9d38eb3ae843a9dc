"""Files written atomically; JSON and TOML read without trust."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from relook.errors import FileFormatError, RelookError

_FORMULA = tuple("=+-@＝＋－＠")  # full-width ones count in Chinese and Japanese
LARGEST_JSON = 16_000_000
"""The largest JSON file that is read by default, in bytes."""

_LARGEST_TOML = 1_000_000  # in bytes
_MOST_DIGITS = 400
_LONGEST_SHOWN = 40
_LONGEST_KEY = 60
_LONGEST_LINE = 2000


if sys.platform == "win32":
    import msvcrt

    _BEYOND = 1 << 30  # a byte far behind the content, as others cannot read locked bytes

    def lock_file(file: int, *, wait: bool) -> None:
        """Lock an open file until it is closed; BlockingIOError if another process holds the lock.

        With `wait`, only after ten seconds.
        """
        here = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, _BEYOND, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError as error:
            raise BlockingIOError(error.errno, "another process holds the lock") from None
        finally:
            os.lseek(file, here, os.SEEK_SET)
else:
    import fcntl

    def lock_file(file: int, *, wait: bool) -> None:
        """Lock an open file until it is closed; BlockingIOError if another process holds the lock.

        With `wait`, wait until that process releases it.
        """
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_bytes_atomic(path: str | Path, data: bytes) -> None:
    """Write a file atomically: whatever happens, it holds all of the old content or of the new.

    Parent directories are created; a link is followed.
    """
    try:
        _write(Path(os.path.realpath(path)), data)
    except (OSError, ValueError) as error:
        raise RelookError(f"cannot write {one_line(str(path))}: {reason_of(error)}") from None


def write_text_atomic(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RelookError(
            f"cannot write {one_line(str(path))}: character {error.start} is not Unicode text"
        ) from None
    write_bytes_atomic(path, data)


def write_json_atomic(path: str | Path, content: object) -> None:
    """Write a JSON file atomically; keys keep their order."""
    write_text_atomic(path, json_text(content))


def json_text(content: object) -> str:
    """Return content as indented JSON, always the same text for the same content."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_bytes(path: str | Path, *, what: str, max_bytes: int) -> bytes:
    """Read a regular file of at most `max_bytes`; `what` says what it should be."""
    path = Path(path)
    try:
        if not path.exists():
            raise _unexpected(path, what, "nothing: there is no such file")
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "something that is not a file"
            raise _unexpected(path, what, kind)
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"cannot read {one_line(str(path))}: {reason_of(error)}") from None
    if len(data) > max_bytes:
        raise _unexpected(path, what, f"more than the allowed {max_bytes:,} bytes")
    return data


def read_json(path: str | Path, *, what: str, max_bytes: int = LARGEST_JSON) -> object:
    """Read a JSON file; anything wrong with it raises a FileFormatError that says where.

    Besides broken JSON, it refuses NaN and Infinity, numbers beyond the range of a float, repeated
    keys in an object, and nesting that is too deep.
    """
    data = read_bytes(path, what=what, max_bytes=max_bytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unexpected(path, what, f"bytes that are not UTF-8 text ({error.reason})") from None
    try:
        return _parse(text)
    except json.JSONDecodeError as error:
        problem = f"{error.msg} (line {error.lineno}, column {error.colno})"
    except _RefusedError as error:
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise _unexpected(path, what, f"unusable JSON: {problem}")


def read_toml(path: str | Path, *, what: str) -> dict[str, Any]:
    """Read a TOML file; besides broken TOML, it refuses NaN, Infinity and too deep nesting."""
    data = read_bytes(path, what=what, max_bytes=_LARGEST_TOML)
    try:
        return tomllib.loads(data.decode("utf-8"), parse_float=_finite)
    except ValueError as error:  # broken TOML, bytes that are not UTF-8, huge integers
        problem = str(error)
    except RecursionError:
        problem = "nested too deeply"
    raise FileFormatError(f"{one_line(str(path))}: expected a TOML file: {problem}")


def describe(value: object) -> str:
    """Return a short description of a value from a file, safe to print on one line."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        cut = value if len(value) <= _LONGEST_SHOWN else value[: _LONGEST_SHOWN - 1] + "…"
        return json.dumps(cut, ensure_ascii=not cut.isprintable())
    if isinstance(value, int | float):
        # Python refuses to write very long integers in decimal.
        long = isinstance(value, int) and value.bit_length() > 128
        return "a huge number" if long else repr(value)
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    return "an object" if isinstance(value, dict) else f"a {type(value).__name__}"


def one_line(text: str) -> str:
    """Return text that is safe to print on one line of a terminal."""
    return text if text.isprintable() else repr(text)


def for_terminal(text: str) -> str:
    """Return text for one line of a terminal, without control characters and not too long."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= _LONGEST_LINE else f"{shown[: _LONGEST_LINE - 1]}…"


def reason_of(error: Exception) -> str:
    """Return an error's message without the file name and number of an OSError."""
    return getattr(error, "strerror", None) or str(error)


def shown_key(key: str) -> str:
    """Return a key of a file for a message: as it is if it is short and printable."""
    return key if key.isprintable() and len(key) <= _LONGEST_KEY else describe(key)


class _RefusedError(ValueError):
    """Valid JSON that relook refuses."""


def _write(target: Path, data: bytes) -> None:
    if target.exists() and not target.is_file():
        raise ValueError("it is a directory" if target.is_dir() else "it is not a regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".relook-{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    # Otherwise a power cut could undo the rename. Windows and some file systems cannot do it.
    if sys.platform == "win32":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)


def _unexpected(path: str | Path, what: str, got: str) -> FileFormatError:
    return FileFormatError(f"{one_line(str(path))}: expected {what}, got {got}")


def _parse(text: str) -> object:
    def refuse(token: str, why: str) -> NoReturn:
        raise _RefusedError(f"{why} ({_place(text, token)})")

    def constant(token: str) -> NoReturn:
        refuse(token, f"{token} is not a JSON number")

    def whole(token: str) -> int:
        if len(token) > _MOST_DIGITS:
            refuse(token, f"an integer of {len(token)} digits")
        return int(token)

    def fraction(token: str) -> float:
        try:
            return _finite(token)
        except ValueError as error:
            refuse(token, str(error))

    return json.loads(
        text,
        parse_constant=constant,
        parse_int=whole,
        parse_float=fraction,
        object_pairs_hook=_without_duplicates,
    )


def _finite(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise ValueError("a number beyond the range of a float")
    return value


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise _RefusedError(f"the key {describe(twice)} twice in one object")
    return content


def _place(text: str, token: str) -> str:
    """Return the place of a token's first occurrence outside of strings, in JSON valid up to it."""
    pattern = rf'"(?:[^"\\]|\\.)*"|({re.escape(token)})(?![\w.])'
    for found in re.finditer(pattern, text):
        if found[1]:
            line = text.count("\n", 0, found.start()) + 1
            column = found.start() - text.rfind("\n", 0, found.start())
            return f"line {line}, column {column}"
    return "place unknown"


def csv_safe(text: str) -> str:
    """Return text on one line that a spreadsheet does not take for a formula."""
    line = " ".join(text.split())
    return f"'{line}" if line.startswith(_FORMULA) else line
