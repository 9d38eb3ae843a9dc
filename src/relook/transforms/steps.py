"""Steps with everything drawn, ready for the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError

Floats = NDArray[np.float64]
Numbers = TypeVar("Numbers", Tensor, Floats)
"""A number per image `[n]`: a tensor for a kernel, an array for the compiled form."""


@dataclass(frozen=True)
class AppliedStep:
    """A transform with each image's value and draws, float64 `[n]`.

    `place` is the step's place in its sub-policy, for messages.
    """

    transform: str
    values: Floats
    draws: Mapping[str, Floats] = field(default_factory=dict)
    place: int = 0

    def tensors(self, device: torch.device | str = "cpu") -> tuple[Tensor, dict[str, Tensor]]:
        """Return the values and the draws as a kernel takes them."""
        draws = {name: torch.from_numpy(draw).to(device) for name, draw in self.draws.items()}
        return torch.from_numpy(self.values).to(device), draws


class StepError(RelookError):
    """An error in a step, with the step's place in its sub-policy."""

    def __init__(self, step: AppliedStep, error: RelookError) -> None:
        super().__init__(str(error))
        self.place = step.place
