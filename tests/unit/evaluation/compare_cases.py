"""Pictures to compare methods on, quick settings, and a look at what was found."""

from typing import Any

import numpy as np
import torch

from relook.data import Dataset
from relook.evaluation.comparison import Comparison, Row

QUICK: dict[str, Any] = {"recipe": "small", "measure_cost": False}


def pictures(count: int = 24, seed: int = 0, shape: tuple[int, int] = (16, 16)) -> Dataset:
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 256, (count, 1, *shape), dtype=np.uint8)
    labels = generator.integers(0, 3, count)
    return Dataset(torch.from_numpy(images), labels, ("a", "b", "c"), "pictures")


def row(comparison: Comparison, method: str, budget: int) -> Row:
    found = comparison.row(method, budget)
    assert found is not None
    return found
