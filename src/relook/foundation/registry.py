"""Tables of rows by name, each name once: what relook can be extended with; and specs' options."""

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
"""The entry points of packages that bring rows of their own."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,59}")
_plugins_wanted = True


def by_name(rows: Iterable[Row], key: str = "name") -> Mapping[str, Row]:
    """Return a read-only table of the rows by their attribute `key`; a name twice raises."""
    table: dict[str, Row] = {}
    for row in rows:
        name = getattr(row, key)
        if name in table:
            raise ValueError(f"{type(row).__name__} {name!r} is in its table twice")
        table[name] = row
    return MappingProxyType(table)


def check_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise for the first name that is not a known one."""
    for name in names:
        if name not in known:
            raise unknown_name(kind, name, known)


class Table(Mapping[str, Row]):
    """Rows by name that users can add to, and that cannot be changed.

    What installed packages add is there as soon as a name is missing, or all are listed.
    """

    def __init__(self, what: str, rows: Iterable[Row], key: str = "name") -> None:
        self._what, self._key, self._rows = what, key, dict(by_name(rows, key))

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
                f"expected a name of up to 60 letters, digits, _, - and . for the {self._what}, "
                f"got {name!r:.80}"
            )
        if name in self._rows:
            raise RelookError(f"there is a {self._what} {name!r} already: choose another name")
        self._rows[name] = row


def split_query(
    rest: str, source: str, options: Mapping[str, Sequence[str]]
) -> tuple[str, dict[str, str]]:
    """Split `NAME[?key=value&…]` in the name and what is said after it.

    `options` has the keys that the source knows, each with its values; none stand for any text.
    """
    name, _, query = rest.partition("?")
    said = {}
    for part in query.split("&") if query else ():
        key, _, value = part.partition("=")
        if key not in options:
            raise unknown_name(f"{source} option", key, options)
        if options[key] and value not in options[key]:
            raise unknown_name(key, value, options[key])
        if not value:
            raise RelookError(f"expected a value as ?{key}=VALUE, got {source}:{rest!r:.200}")
        said[key] = value
    return name, said


def load_plugins() -> None:
    """Have installed packages add their rows, once; one that cannot be loaded is named."""
    global _plugins_wanted
    if not _plugins_wanted:
        return
    _plugins_wanted = False
    from importlib.metadata import entry_points  # slow, and needed by few commands

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
    """Return the name of the module that calls the function that calls this one."""
    return str(sys._getframe(2).f_globals.get("__name__", "__main__"))
