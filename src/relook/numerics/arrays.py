"""Names for the array types that all packages use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
LogProbs = NDArray[np.floating[Any]]
"""Natural log-probabilities `[..., class]`, of any precision."""

Labels = NDArray[np.int64]
"""The class of each image, `[image]`."""

Indices = NDArray[np.int64]
"""Places of images, candidates or classes in an array."""


def runs(count: int, size: int) -> list[slice]:
    """Cut `count` places into runs of `size`; the last may be shorter."""
    return [slice(at, min(at + size, count)) for at in range(0, count, size)]
