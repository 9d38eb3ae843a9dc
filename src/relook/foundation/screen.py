"""The console that results are printed on."""

from __future__ import annotations

import os

from rich.console import Console, ConsoleDimensions

_WIDEST = 160


class Screen(Console):
    """A console that is wide where it is no terminal, and COLUMNS says nothing else."""

    @property
    def size(self) -> ConsoleDimensions:
        """The width and the height."""
        found = super().size
        narrow = self.is_terminal or self.is_jupyter or "COLUMNS" in os.environ
        return found if narrow else ConsoleDimensions(_WIDEST, found.height)

    @size.setter
    def size(self, new_size: tuple[int, int]) -> None:
        self._width, self._height = new_size
