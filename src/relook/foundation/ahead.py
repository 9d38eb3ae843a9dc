"""Results that are made in other threads, a little ahead of their use."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")

AHEAD = 2
"""How many results may wait to be used: enough to even out slow ones, little memory."""


@contextmanager
def made_ahead(
    make: Callable[[Item], Made], items: Iterable[Item], ahead: int = AHEAD, threads: int = 1
) -> Iterator[Iterator[Made]]:
    """Yield an iterator over `make(item)`, in order; `threads` are at most `ahead` results ahead.

    An error in `make` is raised where its result would have come, after all earlier ones.
    When the block ends, in whatever way, what has not begun is dropped and the thread ends.
    """
    with closing(_results(make, items, ahead, threads)) as results:
        yield results


def _results(
    make: Callable[[Item], Made], items: Iterable[Item], ahead: int, threads: int
) -> Generator[Made, None, None]:
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="relook-ahead") as thread:
        try:
            for item in items:
                waiting.append(thread.submit(make, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
