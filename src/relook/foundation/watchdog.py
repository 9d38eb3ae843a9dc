"""A limit on the time that one call of a model may take, for models that hang.

Python cannot end a hung call, so the limit only reports it, and the receiver decides what happens.
The command line ends the process, which is safe at any moment.
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
    """How many seconds a call may take, and what to do if one takes longer.

    `give_up` is called with the call's name, from another thread while the call is still running.
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
    """Apply a limit to the model calls of this thread within the block."""
    token = _LIMIT.set(limit)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def current_limit() -> CallLimit | None:
    """Return this thread's limit, or None."""
    return _LIMIT.get()


@contextmanager
def watched(where: Callable[[], str]) -> Iterator[None]:
    """Apply the limit to the model call within the block; `where` describes the call's input."""
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
