"""The order of the model's work: blocks cut into full calls.

A call never reaches beyond its block, so a block that is computed again after an interruption
is computed by the very same calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relook.predictions.store import Block


@dataclass(frozen=True)
class Segment:
    """One view of consecutive images: a whole model call or a part of one."""

    view: int
    images: slice

    @property
    def size(self) -> int:
        """How many images the segment has."""
        return int(self.images.stop - self.images.start)


@dataclass(frozen=True)
class Call:
    """The views that go through the model at once, all of one block."""

    segments: tuple[Segment, ...]
    ends_block: Block | None  # the block, in its last call

    @property
    def size(self) -> int:
        """How many views the call has."""
        return sum(segment.size for segment in self.segments)


def calls_of(block: Block, batch: int) -> Iterator[Call]:
    """Cut a block's views, one after another, into model calls: full ones, and a last one."""
    images = block.images.stop - block.images.start
    rows = (block.views.stop - block.views.start) * images
    for begin in range(0, rows, batch):
        end = min(begin + batch, rows)
        segments = []
        for view in range(begin // images, -(-end // images)):
            start, stop = max(begin, view * images), min(end, (view + 1) * images)
            offset = block.images.start - view * images
            part = slice(start + offset, stop + offset)
            segments.append(Segment(block.views.start + view, part))
        yield Call(tuple(segments), block if end == rows else None)
