"""Networks for the tests of engines: they take their time, tell of each call, and may fail.

Each call adds a line with the process's id to the file that RELOOK_CALLS names.
"""

import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from relook.models.small import new_small
from relook.numerics.arrays import FloatArray, Labels


class Slow(nn.Module):
    """A small network that sleeps at each call."""

    def __init__(self, seconds: float = 0.1) -> None:
        super().__init__()
        self.network = new_small(seed=1)
        self.seconds = seconds
        self.calls = os.environ.get("RELOOK_CALLS")

    def forward(self, images: Tensor) -> Tensor:
        if self.calls is not None:
            with Path(self.calls).open("a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(self.seconds)
        outputs: Tensor = self.network(images)
        return outputs


class Quick(Slow):
    """The same, without the sleep."""

    def __init__(self) -> None:
        super().__init__(seconds=0)


class Failing(Slow):
    """Raises at each call."""

    def forward(self, images: Tensor) -> Tensor:
        super().forward(images)
        raise ValueError("the weights are\nwrong")


class Deadly(Slow):
    """Takes its process with it."""

    def forward(self, images: Tensor) -> Tensor:
        super().forward(images)
        os._exit(1)


class Hanging(Slow):
    """Never answers."""

    def forward(self, images: Tensor) -> Tensor:
        super().forward(images)
        time.sleep(600)
        return torch.empty(0)


def worst_image(log_probs: FloatArray, labels: Labels) -> float:
    """An objective of a user's own."""
    return float(log_probs[np.arange(len(labels)), labels].min())
