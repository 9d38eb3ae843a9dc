"""A limit on the time that one call of a model may take, for models that hang.

A hung call cannot be ended from inside Python, so the limit only reports it: who gets the report
decides what happens. The command line ends the process, which is safe at any moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from relook.errors import RelookError


@dataclass(frozen=True)
class CallLimit:
    """How many seconds a call may take, and what to do with the name of one that takes longer.

    `give_up` is called from another thread while the call is still running.
    """

    seconds: float
    give_up: Callable[[str], None]

    def __post_init__(self) -> None:
        if not 0 < self.seconds <= threading.TIMEOUT_MAX:
            raise RelookError(
                f"--timeout: expected a number of seconds above 0, got {self.seconds:g}"
            )


_LIMIT: ContextVar[CallLimit | None] = ContextVar("relook_call_limit", default=None)


@contextmanager
def limited_calls(limit: CallLimit | None) -> Iterator[None]:
    """Watch the calls of models that are made in this thread within the block."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def current_limit() -> CallLimit | None:
    """Return the limit that holds in this thread, None where there is none."""
    return _LIMIT.get()


@contextmanager
def watched(where: Callable[[], str]) -> Iterator[None]:
    """Watch one call of a model; `where` names what it was called with."""
    limit = _LIMIT.get()
    if limit is None:
        yield
        return
    timer = threading.Timer(limit.seconds, lambda: limit.give_up(where()))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
