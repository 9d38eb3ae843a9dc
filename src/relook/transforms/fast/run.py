"""Running a plan over a batch: block by block within the cache, on torch's number of threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.transforms.fast.plan import Operation, make_plan
from relook.transforms.steps import AppliedStep

Pixels = NDArray[np.uint8]

# So many bytes of images go through all steps before the next ones: they stay in the cache.
_BLOCK = 1 << 19
# Below so many bytes, a second thread costs more than it brings.
_WORTH_A_THREAD = 1 << 17


def apply_steps(images: Tensor, steps: Sequence[AppliedStep]) -> Tensor | None:
    """Apply the steps to uint8 images `[n, c, h, w]` on the CPU; None: not a case for this path.

    An image's bytes depend on nothing but itself and its own values and draws.
    """
    plan = make_plan(steps, tuple(images.shape))
    if plan is None:
        return None
    if not plan or not len(images):
        return images.clone(memory_format=torch.contiguous_format)
    pixels = images.contiguous().numpy()
    out = np.empty_like(pixels)
    shares = _shares(len(pixels), pixels.nbytes)
    pool = _pool(os.getpid(), len(shares)) if len(shares) > 1 else None
    others = [pool.submit(_run, plan, pixels, out, share) for share in shares[1:]] if pool else []
    _run(plan, pixels, out, shares[0])
    for other in others:
        other.result()
    return torch.from_numpy(out)


def _shares(count: int, size: int) -> list[range]:
    """Cut `count` images into one range for each thread."""
    threads = max(1, min(torch.get_num_threads(), count, size // _WORTH_A_THREAD))
    edges = [count * i // threads for i in range(threads + 1)]
    return [range(edges[i], edges[i + 1]) for i in range(threads)]


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's threads; a forked child gets its own."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="relook-views")


def _run(plan: Sequence[Operation], images: Pixels, out: Pixels, share: range) -> None:
    block = max(1, _BLOCK // images[0].nbytes)
    spare = [np.empty((min(block, len(share)), *images.shape[1:]), np.uint8) for _ in plan[1:3]]
    for start in share[::block]:
        part = slice(start, min(start + block, share.stop))
        source = images[part]
        for i, operation in enumerate(plan):
            target = out[part] if i + 1 == len(plan) else spare[i % 2][: len(source)]
            rows = (array[part] for array in operation.for_each)
            operation.kernel(source, target, *rows, *operation.shared)
            source = target
