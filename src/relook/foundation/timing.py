"""Times of work measured in rounds: what else the machine does can only add to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

_FEWEST_ROUNDS, _LONGEST = 5, 5  # on a busy machine, these rounds may take 5 times as long


def timed_rounds(
    take: Callable[[], Sequence[float]],
    *,
    seconds: float,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> NDArray[np.float64]:
    """Return the times of several things, `[round, thing]`; `take` times each of them once.

    This takes about `seconds`, up to five times as long for the first few rounds, and at least one
    round.
    """
    start, times = clock(), list[Sequence[float]]()
    for done in range(rounds):
        after_next = (clock() - start) * (done + 1) / max(1, done)
        if after_next > seconds * (1 if done >= _FEWEST_ROUNDS else _LONGEST):
            break
        times.append(take())
    return np.array(times)
