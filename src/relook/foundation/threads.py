"""Work in threads: results computed ahead of their use, and parts shared between threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Part = TypeVar("Part")
Made = TypeVar("Made")

AHEAD = 2
"""How many results may wait to be used: enough to even out slow ones, at little memory."""


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], ahead: int = AHEAD, threads: int = 1
) -> Iterator[Iterator[Made]]:
    """Yield an iterator over `make(item)`, in order; `threads` are at most `ahead` results ahead.

    An error in `make` is raised where its result would have come, after all earlier ones.
    When the block ends, calls that have not begun are dropped and the threads end.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="relook-ahead")

    def results() -> Iterator[Made]:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(cancel_futures=True)


def share_work(work: Callable[[Iterator[Part]], None], parts: Iterable[Part], threads: int) -> None:
    """Call `work` in `threads` threads, including this one; each takes parts until none is left.

    At most torch's number of threads run at once.
    """
    left = deque(parts)
    pool = _thread_pool(os.getpid(), torch.get_num_threads()) if threads > 1 else None
    others = [pool.submit(work, _take_parts(left)) for _ in range(threads - 1)] if pool else []
    work(_take_parts(left))
    for other in others:
        if not other.cancel():  # it has begun
            other.result()


def _take_parts(parts: deque[Part]) -> Iterator[Part]:
    while parts:
        try:
            part = parts.popleft()
        except IndexError:  # another thread was quicker
            return
        yield part


@lru_cache(maxsize=1)
def _thread_pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the pool of a process; a forked child gets its own."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="relook-views")
