"""Random fields for one image: pure functions of the seed, the image and the corruption."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray
from relook.numerics.randomness import Stream, philox

Levels = NDArray[np.uint8]
"""One image, uint8 `[c, h, w]`."""

_PURPOSE_BITS = 26  # counters that one field may take: 4 numbers each, 268 million pixels
_SEVERITIES = 8


@dataclass(frozen=True)
class Draws:
    """The numbers that one image gets under one corruption at one severity.

    `purpose` distinguishes the fields of one corruption.
    """

    seed: int
    image: int
    corruption: int
    severity: int

    def uniform(self, purpose: int, *shape: int) -> FloatArray:
        """Return numbers in (0, 1), of 32 bits; without a shape a single one `[]`."""
        numbers = (self._words(purpose, int(np.prod(shape, dtype=np.int64))) + 0.5) / 2.0**32
        return np.asarray(numbers.reshape(shape), dtype=np.float64)

    def between(self, purpose: int, low: float, high: float) -> float:
        """Return one number in (low, high)."""
        return low + (high - low) * float(self.uniform(purpose))

    def normal(self, purpose: int, *shape: int) -> FloatArray:
        """Return standard normal numbers (Box and Muller)."""
        radius, angle = self.uniform(purpose, 2, *shape)
        return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))

    def _words(self, purpose: int, count: int) -> NDArray[np.uint64]:
        counter = np.empty((-(-count // 4), 4), dtype=np.uint64)
        counter[:, 0] = self.image
        counter[:, 1] = self.corruption * _SEVERITIES + self.severity
        counter[:, 2] = np.arange(len(counter)) + (purpose << _PURPOSE_BITS)
        counter[:, 3] = Stream.CORRUPT
        return philox(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32)).reshape(-1)[:count]
