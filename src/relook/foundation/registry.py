"""Tables of rows by name, each name once: how relook lists what it can be extended with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

Row = TypeVar("Row")


def by_name(rows: Iterable[Row], key: str = "name") -> Mapping[str, Row]:
    """Return a read-only table of the rows by their attribute `key`; a name twice raises."""
    table: dict[str, Row] = {}
    for row in rows:
        name = getattr(row, key)
        if name in table:
            raise ValueError(f"{type(row).__name__} {name!r} is in its table twice")
        table[name] = row
    return MappingProxyType(table)
