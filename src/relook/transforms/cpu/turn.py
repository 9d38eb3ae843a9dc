"""Turning planes over: rows become columns, so that columns can be worked on as rows."""

from __future__ import annotations

from typing import Any

from relook.transforms.cpu.memory import helper, read, write
from relook.transforms.cpu.vectors import turn_block

_SIDE = 16


@helper
def transpose(
    images: Any, base: int, height: int, width: int, apart: int, out: Any, to: int
) -> None:
    """Write a plane `[height, width]`, whose rows are `apart` bytes apart, as `[width, height]`."""
    if height < _SIDE or width < _SIDE:
        for x in range(width):
            for y in range(height):
                write(out, to + x * height + y, read(images, base + y * apart + x, 71), 71)
        return
    # The last blocks begin early enough to end at the edge.
    for y in range(0, height, _SIDE):
        top = min(y, height - _SIDE)
        for x in range(0, width, _SIDE):
            left = min(x, width - _SIDE)
            turn_block(
                images, base + top * apart + left, apart, out, to + left * height + top, height
            )
