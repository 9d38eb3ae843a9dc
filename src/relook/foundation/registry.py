"""Tables of rows by unique name, which plug-ins can extend, and the options of specs."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from relook.errors import RelookError, unknown_name, warn
from relook.foundation.wording import first_line

Row = TypeVar("Row")

PLUGINS = "relook.plugins"
"""The group of entry points by which packages add rows."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}")
_plugins_loaded = False


def by_name(rows: Iterable[Row], key: str = "name") -> Mapping[str, Row]:
    """Return a read-only table of the rows by their attribute `key`; a repeated name raises."""
    table: dict[str, Row] = {}
    for row in rows:
        name = getattr(row, key)
        if name in table:
            raise ValueError(f"{type(row).__name__} {name!r} is in its table twice")
        table[name] = row
    return MappingProxyType(table)


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise for the first unknown name."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)


class Table(Mapping[str, Row]):
    """Rows by name; users can add rows but not change them.

    Plug-ins are loaded when a name is missing or all names are listed.
    """

    def __init__(self, kind: str, rows: Iterable[Row], key: str = "name") -> None:
        self._kind, self._key, self._rows = kind, key, dict(by_name(rows, key))

    def __getitem__(self, name: str) -> Row:
        if name not in self._rows:
            load_plugins()
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        load_plugins()
        return iter(tuple(self._rows))

    def __len__(self) -> int:
        load_plugins()
        return len(self._rows)

    def add(self, row: Row) -> None:
        """Add a row; its name must be new."""
        name = getattr(row, self._key)
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RelookError(
                f"expected a name of up to 60 letters, digits, _, - and . for the {self._kind}, "
                f"got {name!r:.80}"
            )
        if name in self._rows:
            raise RelookError(f"there is a {self._kind} {name!r} already: choose another name")
        self._rows[name] = row


def split_query(
    rest: str, source: str, options: Mapping[str, Sequence[str]]
) -> tuple[str, dict[str, str]]:
    """Split `NAME[?key=value&…]` into the name and its options.

    `options` maps the source's keys to their possible values; an empty list allows any text.
    """
    name, _, query = rest.partition("?")
    given = {}
    for part in query.split("&") if query else ():
        key, _, value = part.partition("=")
        if key not in options:
            raise unknown_name(f"{source} option", key, options)
        if options[key] and value not in options[key]:
            raise unknown_name(key, value, options[key])
        if not value:
            raise RelookError(f"expected a value as ?{key}=VALUE, got {source}:{rest!r:.200}")
        given[key] = value
    return name, given


def load_plugins() -> None:
    """Let installed packages add their rows, once; warn about a plug-in that cannot be loaded."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points  # slow, and few commands need it

    for entry in entry_points(group=PLUGINS):
        try:
            plugin = entry.load()
            if callable(plugin):
                plugin()
        except Exception as error:  # whatever it is, relook works without the plug-in
            warn(
                f"the plug-in {entry.name!r} ({entry.value}) cannot be loaded: "
                f"{type(error).__name__}: {first_line(error)}; repair or uninstall it"
            )


def calling_module() -> str:
    """Return the name of the module that called the caller of this function."""
    return str(sys._getframe(2).f_globals.get("__name__", "__main__"))
