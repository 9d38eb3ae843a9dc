"""What a plan is made of: compiled kernels, and torch's where a transform has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relook.transforms.apply import apply_kernels
from relook.transforms.steps import AppliedStep

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
    shared: tuple[NDArray[Any], ...] = ()
    light: bool = False


def by_kernel(step: AppliedStep) -> Operation:
    """Return what has no compiled form: the table's own kernel."""
    return Operation(partial(_run_kernel, step), (step.values, *step.draws.values()))


def _run_kernel(
    step: AppliedStep, images: Pixels, out: Pixels, values: NDArray[Any], *draws: NDArray[Any]
) -> None:
    part = replace(step, values=values, draws=dict(zip(step.draws, draws, strict=True)))
    out[:] = apply_kernels(torch.from_numpy(images), [part]).numpy()
