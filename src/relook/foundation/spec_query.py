"""Specs with options, as sources of images and models write them: `NAME?key=value&key=value`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relook.errors import RelookError, unknown_name


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
