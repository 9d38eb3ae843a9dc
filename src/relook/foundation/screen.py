"""The console that results are printed on."""

from __future__ import annotations

import os

from rich.console import Console, ConsoleDimensions

_WIDTH = 160


class Screen(Console):
    """A console that is wide unless a terminal, a notebook or COLUMNS sets its width."""

    @property
    def size(self) -> ConsoleDimensions:
        """The width and the height."""
        found = super().size
        has_size = self.is_terminal or self.is_jupyter or "COLUMNS" in os.environ
        return found if has_size else ConsoleDimensions(_WIDTH, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size
