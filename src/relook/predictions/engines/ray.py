"""Passes on the workers of a Ray cluster, or of a Ray that is started on this machine.

A block goes to whichever worker is free. A worker that is lost, with its process or its node,
is replaced, and its blocks go to others; what a user can mend ends the run with its one line.
What is stored is never computed again, so a driver that dies is simply started again.
"""

from __future__ import annotations

import math
import os
import signal
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import torch

from relook.errors import MissingExtraError, RelookError, RunError
from relook.foundation.threads import available_cores
from relook.foundation.watchdog import current_limit
from relook.foundation.wording import first_line
from relook.io.files import one_line
from relook.models.base import Predictor
from relook.predictions.engines.worker import Answer, Failure, Task, Worker, last_line, part_of
from relook.predictions.model_calls import Done, Passes
from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore

AHEAD = 2
"""How many blocks a worker is given at once: the next one is there when one is finished."""

_MOST_LOSSES = 3  # of workers that a block may cost before it is taken to be the cause
_LEAST_STARTS = 3  # that fail in a row, or as many as there are workers: there is no point
_POLL = 1.0  # seconds
_ANSWER = 10.0  # seconds that a cluster has to answer at its address
_PATIENCE = 900.0  # seconds to wait for a first worker: a cluster may have to start machines


@dataclass
class _Hand:
    """A worker as the driver sees it, with the blocks that it was given."""

    actor: Any
    ready: bool = False
    blocks: list[PredictionBlock] = field(default_factory=list)


class RayEngine:
    """Workers on a Ray cluster, for the time of a `with` block.

    `address` is the cluster's ("auto" finds the one of this machine); without one, a Ray is
    started here and stopped in the end. `workers` is how many there are at most (default: as
    many as fit), `gpus_per_worker` what each takes of a GPU (0: none, 0.5: two share one). A
    worker uses as many threads as this process would, so that the bytes are the same.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        workers: int | None = None,
        gpus_per_worker: float = 0,
        device: str = "cpu",
        log: Callable[[str], None] | None = None,
    ) -> None:
        if gpus_per_worker < 0 or (gpus_per_worker > 1 and gpus_per_worker % 1):
            raise RelookError(
                "--gpus-per-worker: expected a part of a GPU (0.25) or whole ones, got "
                f"{gpus_per_worker:g}"
            )
        self.address, self.device = address, device
        self.gpu = device.startswith("cuda")
        if self.gpu and not gpus_per_worker:
            gpus_per_worker = 1
        self._wanted, self._gpus = workers, gpus_per_worker
        self._log = log or (lambda line: None)
        self._threads = torch.get_num_threads()
        self._hands: list[_Hand] = []
        self._waiting: dict[Any, tuple[_Hand, PredictionBlock | None]] = {}
        self._predictor: Predictor | None = None
        self._began = False

    def __enter__(self) -> Self:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            self._connect()
            self._began = True
        return self

    def __exit__(self, *error: object) -> None:
        self._dismiss()
        if self._began:
            self._ray.shutdown()

    def blocks(
        self,
        passes: Passes,
        blocks: Sequence[PredictionBlock],
        plan: BatchPlan,
        add: Callable[[int], None],
        store: PredictionStore | None,
    ) -> Done:
        """Yield each block when it is finished; `None` where the worker has stored it."""
        self._hire(passes.predictor)
        run = _Run(self._ray, passes, plan, store, deque(blocks))
        done, since = 0, time.monotonic()
        try:
            while done < len(blocks):
                self._hand_out(run)
                with _own_signals():
                    finished, _ = self._ray.wait(list(self._waiting), timeout=_POLL)
                for ref in finished:
                    block, answer = self._finished(ref, run)
                    if block is not None:
                        done += 1
                        add(math.prod(block.shape))
                        yield block, answer
                if any(hand.ready for hand in self._hands):
                    since = time.monotonic()
                elif time.monotonic() - since > _PATIENCE:
                    raise RunError(self._nobody())
        finally:
            if any(hand.blocks for hand in self._hands):  # nobody waits for them any more
                self._dismiss()

    def _hand_out(self, run: _Run) -> None:
        """Give blocks to the workers that have few."""
        for size in range(AHEAD):
            for hand in self._hands:
                if hand.ready and len(hand.blocks) == size and run.todo:
                    block = run.todo.popleft()
                    hand.blocks.append(block)
                    ref = hand.actor.run.remote(run.task(block), run.images(block))
                    self._waiting[ref] = (hand, block)

    def _finished(self, ref: Any, run: _Run) -> tuple[PredictionBlock | None, Any]:
        """Take what has come of a block or of a start; return a block that is done."""
        hand, block = self._waiting.pop(ref)
        try:
            with _own_signals():
                answer: Answer = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            self._lost(hand, block, run, error)
            return None, None
        except self._ray.exceptions.RayError as error:
            raise RunError(f"a worker failed: {last_line(error)}") from error
        if isinstance(answer, Failure):
            raise _as_error(answer)
        if block is None:
            hand.ready, self._failed_starts = True, 0
            return None, None
        hand.blocks.remove(block)
        run.release(block)
        return block, answer

    def _lost(
        self, hand: _Hand, block: PredictionBlock | None, run: _Run, error: Exception
    ) -> None:
        """Take the blocks of a lost worker back, and hire another one in its place."""
        if hand in self._hands:
            self._hands.remove(hand)
            if hand.ready:
                run.losses[hand.blocks[0].start] += 1  # what it was computing
            else:
                self._failed_starts += 1
            if self._failed_starts >= max(_LEAST_STARTS, self._count):
                raise RunError(f"workers do not start: {last_line(error)}") from error
            self._log("Ray: a worker was lost; its blocks go to others")
            self._add_hand()
        if block is None:
            return
        run.todo.appendleft(block)
        if run.losses[block.start] >= _MOST_LOSSES:
            raise RunError(
                f"{_MOST_LOSSES} workers were lost one after another on the same block of "
                f"predictions: {last_line(error)}: perhaps they need more memory, or a "
                "smaller --batch; what is done is kept"
            ) from error

    def _hire(self, predictor: Predictor) -> None:
        """Have workers that hold this model: those of before, or new ones."""
        if self._predictor is predictor and self._hands:
            return
        self._dismiss()
        self._predictor = predictor
        self._failed_starts = 0
        self._cpus = _cpus_per_worker(self._ray, self._threads, self._gpus)
        try:
            self._model = self._ray.put(predictor)
        except Exception as error:  # whatever a user's objects raise when they are pickled
            raise RelookError(
                f"the model cannot be sent to workers: {type(error).__name__}: "
                f"{one_line(first_line(error))}: use the local engine"
            ) from error
        self._count = self._wanted or _places(self._ray, self._cpus, self._gpus)
        if not self._count:
            raise RunError(self._nobody())
        self._log(f"Ray: {_number(self._count, 'worker')}, each with {self._each()}")
        for _ in range(self._count):
            self._add_hand()

    def _add_hand(self) -> None:
        worker = self._ray.remote(Worker)
        options = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_restarts": 0}
        hand = _Hand(worker.options(**options).remote(str(Path.cwd())))
        self._hands.append(hand)
        ready = hand.actor.start.remote(self._model, self.device, self._threads)
        self._waiting[ready] = (hand, None)

    def _dismiss(self) -> None:
        for hand in self._hands:
            self._ray.kill(hand.actor)
        self._hands, self._waiting, self._predictor = [], {}, None

    def _nobody(self) -> str:
        there = self._ray.cluster_resources()
        return (
            f"no worker has started: each needs {self._each()}, and the cluster has "
            f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs in all: set "
            "OMP_NUM_THREADS or --gpus-per-worker lower, or add machines"
        )

    def _each(self) -> str:
        cpus = _number(self._cpus, "CPU")
        return f"{cpus} and {_number(self._gpus, 'GPU')}" if self._gpus else cpus

    def _connect(self) -> None:
        options: dict[str, Any] = {"address": self.address}
        if self.address is not None:
            _check_answers(self.address)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = max(available_cores(), (self._wanted or 1) * self._threads)
            options = {"address": "local", "include_dashboard": False, "num_cpus": cores}
        try:
            with _own_sigterm():
                self._ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:  # Ray raises many kinds, and none of its own
            where = "start Ray here" if self.address is None else f"reach Ray at {self.address}"
            raise RunError(f"cannot {where}: {one_line(first_line(error))}") from error


class _Run:
    """The blocks of one call that are still to do, and what the workers are sent for them."""

    def __init__(
        self,
        ray: Any,
        passes: Passes,
        plan: BatchPlan,
        store: PredictionStore | None,
        todo: deque[PredictionBlock],
    ) -> None:
        self._ray, self._passes, self._plan = ray, passes, plan
        self._url = None if store is None else store.url
        self._precision = "float32" if store is None else store.dtype.name
        self._left = Counter(block.images.start for block in todo)
        self._parts: dict[int, Any] = {}
        self.todo = todo
        self.losses: Counter[tuple[int, int]] = Counter()

    def task(self, block: PredictionBlock) -> Task:
        """Return what a worker gets to know of a block."""
        limit = current_limit()
        return Task(
            block,
            self._plan,
            self._passes.views[block.views],
            self._passes.indices[block.images],
            self._passes.seed,
            self._url,
            self._precision,
            None if limit is None else limit.seconds,
        )

    def images(self, block: PredictionBlock) -> Any:
        """Return the block's images in Ray's object store; blocks of the same images share them."""
        start = block.images.start
        if start not in self._parts:
            self._parts[start] = self._ray.put(part_of(self._passes.images, block.images))
        return self._parts[start]

    def release(self, block: PredictionBlock) -> None:
        """Let go of the images with the last block that needs them."""
        start = block.images.start
        self._left[start] -= 1
        if not self._left[start]:
            self._parts.pop(start, None)


def _places(ray: Any, cpus: float, gpus: float) -> int:
    """Return how many workers fit on the nodes that are there."""
    found = 0
    for node in ray.nodes():
        if node["Alive"]:
            has = node["Resources"]
            fit = int(has.get("CPU", 0) / cpus)
            found += min(fit, int(has.get("GPU", 0) / gpus + 1e-9)) if gpus else fit
    return found


def _cpus_per_worker(ray: Any, threads: int, gpus: float) -> int:
    """Return the cores of a worker: its threads', or its GPU's share of its machine."""
    if not gpus:
        return threads
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    shares = [node.get("CPU", 0) * gpus / node["GPU"] for node in nodes if node.get("GPU")]
    return max(1, int(min(shares, default=1)))


def _as_error(failure: Failure) -> RelookError:
    limit = current_limit()
    if failure.hung and limit is not None:
        limit.give_up(failure.text)
        return RelookError(f"the model has not answered for {limit.seconds:g} s on {failure.text}")
    return RelookError(failure.text)


def _number(count: float, what: str) -> str:
    return f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def _check_answers(address: str) -> None:
    """Raise now where nobody listens, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"cannot reach Ray at {address}: {first_line(error)}") from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Raise what a signal's handler raised in the middle of Ray, which wraps it."""
    try:
        yield
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None


@contextmanager
def _own_sigterm() -> Iterator[None]:
    """Keep this process's answer to SIGTERM, which Ray would replace."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


def _import_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError("Ray", "ray", "--engine ray") from None
    return ray
