"""Applies steps to images: with compiled kernels on the CPU, with the table's kernels elsewhere.

A plan for the CPU is a list of operations, run block by block within the cache on torch's threads.
Neighbouring steps become one operation if the bytes stay equal; a transform without a compiled form
is an operation too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.foundation.threads import share_work
from relook.transforms.steps import AppliedStep, StepError
from relook.transforms.table import TRANSFORMS, load_form

Shape = tuple[int, ...]
"""The shape of the images: `[n, c, h, w]`."""
Pixels = NDArray[np.uint8]

# This many bytes of images go through all steps before the next ones, so they stay in the cache.
_BLOCK = 1 << 19
# Below this many bytes a second thread costs more than it saves.
_BYTES_PER_THREAD = 1 << 17
_BYTES_PER_THREAD_LIGHT = 1 << 20


@dataclass(frozen=True)
class Operation:
    """A kernel `(images, out, *for_each, *shared)`; `for_each` has a row per image.

    A light one takes little longer than copying the images.
    """

    kernel: Callable[..., None]
    for_each: tuple[NDArray[Any], ...]
    shared: tuple[Any, ...] = ()
    light: bool = False


def apply_steps(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Return uint8 images `[n, c, h, w]` after the steps; the same bytes on every device.

    An image's bytes depend only on itself and its own values and draws.
    """
    compiled = any(TRANSFORMS[step.transform].cpu for step in steps)
    if compiled and images.device.type == "cpu":
        return _run_steps(images, steps)
    return apply_kernels(images, steps)


def apply_kernels(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Return new images after the steps, applied one by one with the table's kernels."""
    if not steps:
        return images.clone(memory_format=torch.contiguous_format)
    for step in steps:
        values, draws = step.tensors(images.device)
        try:
            images = TRANSFORMS[step.transform].kernel(images, values, **draws)
        except RelookError as error:
            raise StepError(step, error) from error
    return images


def _run_steps(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Return new uint8 images `[n, c, h, w]` after the steps, on the CPU."""
    plan = make_plan(steps, tuple(images.shape)) if len(images) else []
    if not plan:
        return images.clone(memory_format=torch.contiguous_format)
    pixels = images.contiguous().numpy()
    out = np.empty_like(pixels)
    light = all(operation.light for operation in plan)
    worth = pixels.nbytes // (_BYTES_PER_THREAD_LIGHT if light else _BYTES_PER_THREAD)
    threads = max(1, min(torch.get_num_threads(), len(pixels), worth))
    # A single step does not need blocks, as it reads each image once.
    most = max(1, _BLOCK // pixels[0].nbytes) if len(plan) > 1 else len(pixels)
    blocks = _split_evenly(len(pixels), most, threads)
    share_work(partial(_run_blocks, plan, pixels, out), blocks, threads)
    return torch.from_numpy(out)


def _split_evenly(count: int, most: int, threads: int) -> list[slice]:
    """Cut `count` images into equal blocks, as many for each thread; the last may be smaller."""
    rounds = -(-count // (most * threads))
    length = -(-count // (rounds * threads))
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _run_blocks(
    plan: Sequence[Operation], images: Pixels, out: Pixels, blocks: Iterator[slice]
) -> None:
    """Apply the plan to blocks until none is left."""
    spare: list[Pixels] = []
    for part in blocks:
        source = images[part]
        while len(spare) < min(2, len(plan) - 1):
            spare.append(np.empty_like(source))
        for i, operation in enumerate(plan):
            target = out[part] if i + 1 == len(plan) else spare[i % 2][: len(source)]
            rows = (array[part] for array in operation.for_each)
            operation.kernel(source, target, *rows, *operation.shared)
            source = target


def make_plan(steps: Sequence[AppliedStep], shape: Shape) -> list[Operation]:
    """Return the operations for images `[n, c, h, w]`, none if the steps change nothing.

    A compiled form `(step, shape)` returns an operation, or a part whose class has `merged` to make
    an operation of neighbouring parts, or None if it changes nothing.
    """
    forms = [(step, TRANSFORMS[step.transform].cpu) for step in steps]
    parts = [load_form(form)(step, shape) if form else by_kernel(step) for step, form in forms]
    operations: list[Operation] = []
    for kind, run in groupby((part for part in parts if part is not None), key=type):
        alike: list[Any] = list(run)
        operations += alike if kind is Operation else [alike[0].merged(alike)]
    return operations


def by_kernel(step: AppliedStep) -> Operation:
    """Return the operation of a step without a compiled form: the table's kernel."""
    return Operation(partial(_run_kernel, step), (step.values, *step.draws.values()))


def _run_kernel(
    step: AppliedStep, images: Pixels, out: Pixels, values: NDArray[Any], *draws: NDArray[Any]
) -> None:
    part = replace(step, values=values, draws=dict(zip(step.draws, draws, strict=True)))
    out[:] = apply_kernels(torch.from_numpy(images), [part]).numpy()


def level_tables(transform: str, values: Sequence[float]) -> NDArray[np.uint8]:
    """Return the look-up tables `[k, 256]` of a transform that depends only on grey levels."""
    return _level_tables(TRANSFORMS[transform].kernel, tuple(values))


@lru_cache(maxsize=1024)
def _level_tables(kernel: Callable[..., Tensor], values: tuple[float, ...]) -> NDArray[np.uint8]:
    picture = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    pictures = picture.expand(len(values), -1, -1, -1)
    tables = kernel(pictures, torch.tensor(values, dtype=torch.float64)).numpy().reshape(-1, 256)
    tables.flags.writeable = False
    return tables
