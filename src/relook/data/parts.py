"""Specs with one option: `DIR?part=train`."""

from __future__ import annotations

from collections.abc import Sequence

from relook.errors import unknown_name


def part_of(rest: str, source: str, parts: Sequence[str]) -> tuple[str, str]:
    """Split `DIR[?part=NAME]` in folder and part; the first part is the default."""
    folder, _, option = rest.partition("?")
    if not option:
        return folder, parts[0]
    key, _, part = option.partition("=")
    if key != "part":
        raise unknown_name(f"{source} option", key, ["part"])
    if part not in parts:
        raise unknown_name(f"part of {source}", part, parts)
    return folder, part
