"""A worker: it holds the model, and computes one block after another.

It is a plain object, independent of Ray; engines/ray.py makes it an actor.
"""

from __future__ import annotations

import queue
import sys
import threading
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.foundation.watchdog import CallLimit, limited_calls
from relook.io.files import one_line
from relook.models.base import Predictor
from relook.models.predictors import EnsemblePredictor, TorchPredictor
from relook.predictions.model_calls import Passes, View
from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore
from relook.transforms.full_images import FullImages

Part = NDArray[np.uint8] | FullImages


@dataclass(frozen=True)
class Task:
    """A block with everything it depends on except the model and the images.

    `views` and `indices` are the block's own. With a `store` (a URL) the worker writes the block
    to it. `timeout` is the limit on a model call, in seconds.
    """

    block: PredictionBlock
    plan: BatchPlan
    views: tuple[View, ...]
    indices: NDArray[np.int64]
    seed: int
    store: str | None
    precision: str
    timeout: float | None


@dataclass(frozen=True)
class Failure:
    """An error that a user can correct, as one line; `hung`: the model call that takes too long."""

    text: str
    hung: bool = False


Answer = NDArray[np.float32] | Failure | None


class Worker:
    """A model, loaded once, and the blocks that are computed with it.

    Errors that a user can correct are returned: whatever is raised here, or kills the process, is
    the machine's fault, and the block is tried again elsewhere.
    """

    def __init__(self, directory: str) -> None:
        # A user's own modules are imported from where the command was started, if that exists here.
        sys.path.append(directory)

    def start(self, predictor: Predictor, device: str, threads: int) -> Failure | None:
        """Move the model to the device; `threads` is the calling process's number."""
        torch.set_num_threads(threads)
        try:
            self._predictor = placed(predictor, device)
        except RelookError as error:
            return Failure(str(error))
        self._stores: dict[str, PredictionStore] = {}
        return None

    def run(self, task: Task, images: Part) -> Answer:
        """Return the block's log-probabilities `[view, image, class]`, or store them."""
        if task.timeout is None:
            return self._answer(task, images, None)
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()
        limit = CallLimit(task.timeout, lambda where: answers.put(Failure(where, hung=True)))

        def work() -> None:
            try:
                answers.put(self._answer(task, images, limit))
            except BaseException as error:
                answers.put(error)

        # A hung call cannot be ended: it is abandoned, and its failure is the answer.
        threading.Thread(target=work, daemon=True).start()
        answer = answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _answer(self, task: Task, images: Part, limit: CallLimit | None) -> Answer:
        try:
            with limited_calls(limit):
                log_probs = self._log_probs(task, images)
            if task.store is None:
                return log_probs
            self._store(task.store, task.plan, task.precision).write(task.block, log_probs)
        except RelookError as error:
            return Failure(str(error))
        return None

    def _log_probs(self, task: Task, images: Part) -> NDArray[np.float32]:
        views, count = task.block.shape
        block = PredictionBlock(slice(0, views), slice(0, count))
        passes = Passes(self._predictor, images, task.indices, task.views, task.seed)
        with closing(passes.blocks([block], task.plan, lambda passes: None)) as done:
            return next(done)[1]

    def _store(self, url: str, plan: BatchPlan, precision: str) -> PredictionStore:
        if url not in self._stores:
            self._stores[url] = PredictionStore.attach(url, plan, precision)
        return self._stores[url]


def last_line(error: Exception) -> str:
    """Return the last line, the message, of an error from another process."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return one_line(lines[-1]) if lines else type(error).__name__


def placed(predictor: Predictor, device: str) -> Predictor:
    """Return the predictor with its weights on the device."""
    if device == "cpu":
        return predictor
    members = predictor.members if isinstance(predictor, EnsemblePredictor) else (predictor,)
    for member in members:
        if not isinstance(member, TorchPredictor):
            raise RelookError(
                f"expected a torch module to run on {device}, got a {type(member).__name__}: "
                "leave --device and --gpus-per-worker out"
            )
        member.move(device)
    return predictor


def part_of(images: object, part: slice) -> Part:
    """Return a part of the images as it is sent to a worker: as an array without the rest."""
    if isinstance(images, FullImages):
        selected = images[part].compact()
        images.release()
        return selected
    if isinstance(images, torch.Tensor):
        return images[part].numpy(force=True)
    return np.asarray(images[part])  # type: ignore[index]
