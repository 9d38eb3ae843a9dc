"""Steps applied to images: compiled on the CPU, by the table's own kernels elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import TRANSFORMS


def apply_steps(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Return uint8 images `[n, c, h, w]` after the steps, on any device; the same bytes on all.

    An image's bytes depend on nothing but itself and its own values and draws.
    """
    compiled = any(TRANSFORMS[step.transform].cpu for step in steps)
    if compiled and images.device.type == "cpu":
        from relook.transforms.cpu.run import run_steps  # numba: only where it is used

        return run_steps(images, steps)
    return apply_kernels(images, steps)


def apply_kernels(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Apply the steps one by one with the table's own kernels; makes new images."""
    if not steps:
        return images.clone(memory_format=torch.contiguous_format)
    for step in steps:
        values, draws = step.tensors(images.device)
        try:
            images = TRANSFORMS[step.transform].kernel(images, values, **draws)
        except RelookError as error:
            raise StepError(step, error) from error
    return images


def level_tables(transform: str, values: Sequence[float]) -> NDArray[np.uint8]:
    """Return what a transform that looks at nothing but grey levels makes of them: `[k, 256]`."""
    return _level_tables(TRANSFORMS[transform].kernel, tuple(values))


@lru_cache(maxsize=1024)
def _level_tables(kernel: Callable[..., Tensor], values: tuple[float, ...]) -> NDArray[np.uint8]:
    picture = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    pictures = picture.expand(len(values), -1, -1, -1)
    tables = kernel(pictures, torch.tensor(values, dtype=torch.float64)).numpy().reshape(-1, 256)
    tables.flags.writeable = False
    return tables
