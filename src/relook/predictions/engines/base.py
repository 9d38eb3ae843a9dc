"""What an engine is: it is given the plan's blocks, and returns each with its predictions.

Without an engine the passes are made in this process. Every engine is given the same blocks,
and a block is computed by the same model calls wherever it is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore

if TYPE_CHECKING:
    from relook.predictions.model_calls import Passes

ENGINES = ("local", "ray")

Done = Generator[tuple[PredictionBlock, NDArray[np.float32] | None], None, None]
"""Blocks as they are finished, with log-probabilities `[view, image, class]`; without them,
where a worker has stored them itself."""


class Engine(Protocol):
    """Who makes the passes, instead of this process."""

    @property
    def gpu(self) -> bool:
        """Whether the model runs on GPUs, which decides the default batch."""

    def blocks(
        self,
        passes: Passes,
        blocks: Sequence[PredictionBlock],
        plan: BatchPlan,
        add: Callable[[int], None],
        store: PredictionStore | None,
    ) -> Done:
        """Yield each block, in any order; `add` counts passes, `store` is where they will go."""


_ENGINE: ContextVar[Engine | None] = ContextVar("relook_engine", default=None)


@contextmanager
def running_on(engine: Engine | None) -> Iterator[None]:
    """Make the passes of this thread on the engine within the block; None: in this process."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


def on_other_gpus() -> bool:
    """Whether the passes are made on GPUs that are not this process's."""
    engine = _ENGINE.get()
    return engine is not None and engine.gpu


def current_engine() -> Engine | None:
    """Return the engine that passes are made on, None for this process."""
    return _ENGINE.get()
