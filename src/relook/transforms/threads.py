"""Work shared between this thread and others, as many as torch has."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

import torch

Part = TypeVar("Part")


def share_work(work: Callable[[Iterator[Part]], None], parts: Iterable[Part], threads: int) -> None:
    """Call `work` in `threads` threads, this one among them; each takes parts until none is left.

    There are never more than torch's number of threads.
    """
    left = deque(parts)
    pool = _pool(os.getpid(), torch.get_num_threads()) if threads > 1 else None
    others = [pool.submit(work, _taken(left)) for _ in range(threads - 1)] if pool else []
    work(_taken(left))
    for other in others:
        if not other.cancel():  # it has begun
            other.result()


def _taken(parts: deque[Part]) -> Iterator[Part]:
    while parts:
        try:
            part = parts.popleft()
        except IndexError:  # another thread was quicker
            return
        yield part


@lru_cache(maxsize=1)
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return this process's threads; a forked child gets its own."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="relook-views")
