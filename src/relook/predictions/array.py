"""Predictions as an array that need not be in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relook.numerics.arrays import LogProbs


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities `[k, n, c]` that can be loaded or, if there is a `map`, left on disk."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    load: Callable[[], LogProbs]
    map: Callable[[], LogProbs] | None = None
