"""Steps applied to images: compiled on the CPU, by the table's own kernels elsewhere.

A compiled plan is made of operations; a transform without a compiled form is one, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import TRANSFORMS

Shape = tuple[int, ...]
"""Of the images: `[n, c, h, w]`."""
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Operation:
    """A kernel `(images, out, *for_each, *shared)`; `for_each` has a row per image.

    A light one takes hardly longer than copying the images.
    """

    kernel: Callable[..., None]
    for_each: tuple[NDArray[Any], ...]
    shared: tuple[Any, ...] = ()
    light: bool = False


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


def by_kernel(step: AppliedStep) -> Operation:
    """Return what has no compiled form: the table's own kernel."""
    return Operation(partial(_run_kernel, step), (step.values, *step.draws.values()))


def _run_kernel(
    step: AppliedStep, images: Pixels, out: Pixels, values: NDArray[Any], *draws: NDArray[Any]
) -> None:
    part = replace(step, values=values, draws=dict(zip(step.draws, draws, strict=True)))
    out[:] = apply_kernels(torch.from_numpy(images), [part]).numpy()


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
