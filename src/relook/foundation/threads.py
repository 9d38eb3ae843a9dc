"""Work in other threads: results a little ahead of their use, and parts that threads share."""

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
"""How many results may wait to be used: enough to even out slow ones, little memory."""


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], ahead: int = AHEAD, threads: int = 1
) -> Iterator[Iterator[Made]]:
    """Yield an iterator over `make(item)`, in order; `threads` are at most `ahead` results ahead.

    An error in `make` is raised where its result would have come, after all earlier ones.
    When the block ends, in whatever way, what has not begun is dropped and the thread ends.
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
