"""Steps → a few compiled kernels → a batch, block by block within the cache, on torch's threads.

Neighbours merge into one kernel where the bytes stay equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from relook.foundation.threads import share_work
from relook.transforms.apply import Operation, Pixels, Shape, by_kernel
from relook.transforms.cpu.color import PointStep, merged_points
from relook.transforms.cpu.moves import MoveStep, merged_moves
from relook.transforms.steps import AppliedStep
from relook.transforms.table import TRANSFORMS, load_form

_MERGED: dict[type, Callable[..., Operation]] = {PointStep: merged_points, MoveStep: merged_moves}
"""What neighbours of a kind become. A compiled form `(step, shape)` returns one of these, an
operation, or None where it leaves the images as they are."""

# So many bytes of images go through all steps before the next ones: they stay in the cache.
_BLOCK = 1 << 19
# Below this many bytes, a second thread costs more than it brings.
_BYTES_PER_THREAD = 1 << 17
_BYTES_PER_THREAD_LIGHT = 1 << 20


def run_steps(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor:
    """Apply the steps to uint8 images `[n, c, h, w]` on the CPU; makes new images."""
    plan = make_plan(steps, tuple(images.shape)) if len(images) else []
    if not plan:
        return images.clone(memory_format=torch.contiguous_format)
    pixels = images.contiguous().numpy()
    out = np.empty_like(pixels)
    light = all(operation.light for operation in plan)
    worth = pixels.nbytes // (_BYTES_PER_THREAD_LIGHT if light else _BYTES_PER_THREAD)
    threads = max(1, min(torch.get_num_threads(), len(pixels), worth))
    # A single step needs no cache: each image is read once.
    most = max(1, _BLOCK // pixels[0].nbytes) if len(plan) > 1 else len(pixels)
    blocks = _blocks(len(pixels), most, threads)
    share_work(partial(_run, plan, pixels, out), blocks, threads)
    return torch.from_numpy(out)


def _blocks(count: int, most: int, threads: int) -> list[slice]:
    """Cut `count` images into equal blocks, as many for each thread; the last may be smaller."""
    rounds = -(-count // (most * threads))
    length = -(-count // (rounds * threads))
    return [slice(start, min(start + length, count)) for start in range(0, count, length)]


def _run(plan: Sequence[Operation], images: Pixels, out: Pixels, blocks: Iterator[slice]) -> None:
    """Take blocks until none is left; whichever thread takes one, its bytes are the same."""
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
    """Return the kernels for images `[n, c, h, w]`; none where the steps change nothing."""
    forms = [(step, TRANSFORMS[step.transform].cpu) for step in steps]
    parts = [load_form(form)(step, shape) if form else by_kernel(step) for step, form in forms]
    operations: list[Operation] = []
    for kind, run in groupby((part for part in parts if part is not None), key=type):
        alike = list(run)
        operations += [_MERGED[kind](alike)] if kind in _MERGED else alike
    return operations
