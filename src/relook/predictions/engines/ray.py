"""Passes on the workers of a Ray cluster, or of a Ray started on this machine.

A block goes to whichever worker is free. A worker that is lost, with its process or its node,
is replaced, and its blocks go to others; an error that a user can correct ends the run. Stored
blocks are never computed again, so a driver that dies is simply restarted.
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
"""Blocks that a worker is given at once, so that it never waits for the next one."""

_MAX_LOSSES = 3  # workers lost on a block before it is taken to be the cause
_MAX_FAILED_STARTS = 3  # in a row, or as many as there are workers
_POLL_SECONDS = 1.0
_CONNECT_SECONDS = 10.0  # for a cluster to answer at its address
_START_SECONDS = 900.0  # for the first worker: a cluster may have to start machines


@dataclass
class _WorkerHandle:
    """The driver's handle of a worker, with the blocks that it was given."""

    actor: Any
    ready: bool = False
    blocks: list[PredictionBlock] = field(default_factory=list)


class RayEngine:
    """Workers on a Ray cluster, for the time of a `with` block.

    `address` is the cluster's ("auto" finds the one of this machine); without one, a Ray is
    started here and stopped at the end. `workers` is their largest number (default: as many as
    fit), `gpus_per_worker` each one's share of a GPU (0: none, 0.5: two share one). A worker uses
    as many threads as this process would, so that the bytes are the same.
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
        self._max_workers, self._gpus = workers, gpus_per_worker
        self._log = log or (lambda line: None)
        self._threads = torch.get_num_threads()
        self._workers: list[_WorkerHandle] = []
        self._waiting: dict[Any, tuple[_WorkerHandle, PredictionBlock | None]] = {}
        self._predictor: Predictor | None = None
        self._started_ray = False

    def __enter__(self) -> Self:
        self._ray = _import_ray()
        if not self._ray.is_initialized():
            self._connect()
            self._started_ray = True
        return self

    def __exit__(self, *error: object) -> None:
        self._stop_workers()
        if self._started_ray:
            self._ray.shutdown()

    def blocks(
        self,
        passes: Passes,
        blocks: Sequence[PredictionBlock],
        plan: BatchPlan,
        add: Callable[[int], None],
        store: PredictionStore | None,
    ) -> Done:
        """Yield each finished block, with `None` if the worker has stored it."""
        self._start_workers(passes.predictor)
        run = _BlockQueue(self._ray, passes, plan, store, deque(blocks))
        done, since = 0, time.monotonic()
        try:
            while done < len(blocks):
                self._assign_blocks(run)
                with _signals_unwrapped():
                    finished, _ = self._ray.wait(list(self._waiting), timeout=_POLL_SECONDS)
                for ref in finished:
                    block, answer = self._collect(ref, run)
                    if block is not None:
                        done += 1
                        add(math.prod(block.shape))
                        yield block, answer
                if any(worker.ready for worker in self._workers):
                    since = time.monotonic()
                elif time.monotonic() - since > _START_SECONDS:
                    raise RunError(self._no_worker_message())
        finally:
            if any(worker.blocks for worker in self._workers):  # whose results are no longer wanted
                self._stop_workers()

    def _assign_blocks(self, run: _BlockQueue) -> None:
        """Give blocks to the workers that have few."""
        for size in range(AHEAD):
            for worker in self._workers:
                if worker.ready and len(worker.blocks) == size and run.todo:
                    block = run.todo.popleft()
                    worker.blocks.append(block)
                    ref = worker.actor.run.remote(run.task(block), run.images(block))
                    self._waiting[ref] = (worker, block)

    def _collect(self, ref: Any, run: _BlockQueue) -> tuple[PredictionBlock | None, Any]:
        """Take the result of a block or of a worker's start; return the block if it is done."""
        worker, block = self._waiting.pop(ref)
        try:
            with _signals_unwrapped():
                answer: Answer = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            self._replace_worker(worker, block, run, error)
            return None, None
        except self._ray.exceptions.RayError as error:
            raise RunError(f"a worker failed: {last_line(error)}") from error
        if isinstance(answer, Failure):
            raise _to_error(answer)
        if block is None:
            worker.ready, self._failed_starts = True, 0
            return None, None
        worker.blocks.remove(block)
        run.release(block)
        return block, answer

    def _replace_worker(
        self,
        worker: _WorkerHandle,
        block: PredictionBlock | None,
        run: _BlockQueue,
        error: Exception,
    ) -> None:
        """Take back the block of a lost worker, and start another worker in its place."""
        if worker in self._workers:
            self._workers.remove(worker)
            if worker.ready:
                run.losses[worker.blocks[0].start] += 1  # what it was computing
            else:
                self._failed_starts += 1
            if self._failed_starts >= max(_MAX_FAILED_STARTS, self._count):
                raise RunError(f"workers do not start: {last_line(error)}") from error
            self._log("Ray: a worker was lost; its blocks go to others")
            self._add_worker()
        if block is None:
            return
        run.todo.appendleft(block)
        if run.losses[block.start] >= _MAX_LOSSES:
            raise RunError(
                f"{_MAX_LOSSES} workers were lost one after another on the same block of "
                f"predictions: {last_line(error)}: perhaps they need more memory, or a "
                "smaller --batch; what is done is kept"
            ) from error

    def _start_workers(self, predictor: Predictor) -> None:
        """Start workers that hold this model, unless they are running."""
        if self._predictor is predictor and self._workers:
            return
        self._stop_workers()
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
        self._count = self._max_workers or _worker_capacity(self._ray, self._cpus, self._gpus)
        if not self._count:
            raise RunError(self._no_worker_message())
        self._log(f"Ray: {_counted(self._count, 'worker')}, each with {self._resources_text()}")
        for _ in range(self._count):
            self._add_worker()

    def _add_worker(self) -> None:
        actor_class = self._ray.remote(Worker)
        options = {"num_cpus": self._cpus, "num_gpus": self._gpus, "max_restarts": 0}
        worker = _WorkerHandle(actor_class.options(**options).remote(str(Path.cwd())))
        self._workers.append(worker)
        ready = worker.actor.start.remote(self._model, self.device, self._threads)
        self._waiting[ready] = (worker, None)

    def _stop_workers(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers, self._waiting, self._predictor = [], {}, None

    def _no_worker_message(self) -> str:
        there = self._ray.cluster_resources()
        return (
            f"no worker has started: each needs {self._resources_text()}, and the cluster has "
            f"{there.get('CPU', 0):g} CPUs and {there.get('GPU', 0):g} GPUs in all: set "
            "OMP_NUM_THREADS or --gpus-per-worker lower, or add machines"
        )

    def _resources_text(self) -> str:
        cpus = _counted(self._cpus, "CPU")
        return f"{cpus} and {_counted(self._gpus, 'GPU')}" if self._gpus else cpus

    def _connect(self) -> None:
        options: dict[str, Any] = {"address": self.address}
        if self.address is not None:
            _check_reachable(self.address)
        else:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            cores = max(available_cores(), (self._max_workers or 1) * self._threads)
            options = {"address": "local", "include_dashboard": False, "num_cpus": cores}
        try:
            with _sigterm_kept():
                self._ray.init(log_to_driver=False, logging_level="ERROR", **options)
        except Exception as error:  # Ray raises many kinds, and none of its own
            where = "start Ray here" if self.address is None else f"reach Ray at {self.address}"
            raise RunError(f"cannot {where}: {one_line(first_line(error))}") from error


class _BlockQueue:
    """The blocks of one call still to do, and their tasks and images for the workers."""

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
        """Return a block's task for a worker."""
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
        """Drop a block's images if no other block needs them."""
        start = block.images.start
        self._left[start] -= 1
        if not self._left[start]:
            self._parts.pop(start, None)


def _worker_capacity(ray: Any, cpus: float, gpus: float) -> int:
    """Return how many workers fit on the cluster's nodes."""
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


def _to_error(failure: Failure) -> RelookError:
    limit = current_limit()
    if failure.hung and limit is not None:
        limit.give_up(failure.text)
        return RelookError(f"the model has not answered for {limit.seconds:g} s on {failure.text}")
    return RelookError(failure.text)


def _counted(count: float, what: str) -> str:
    return f"{count:g} {what}" if count == 1 else f"{count:g} {what}s"


def _check_reachable(address: str) -> None:
    """Raise at once if no cluster answers, which Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(f"cannot reach Ray at {address}: {first_line(error)}") from error


@contextmanager
def _signals_unwrapped() -> Iterator[None]:
    """Raise the error of a signal handler that Ray has wrapped in its own."""
    try:
        yield
    except SystemError as error:
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None


@contextmanager
def _sigterm_kept() -> Iterator[None]:
    """Keep this process's handler of SIGTERM, which Ray would replace."""
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
