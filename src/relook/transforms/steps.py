"""A step on its way to the kernels: every number that it needs is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Draws = Mapping[str, Floats]


@dataclass(frozen=True)
class AppliedStep:
    """A transform with what each image gets: values and draws, float64 `[n]`."""

    transform: str
    values: Floats
    draws: Draws
