"""Views → model calls → checked log-probabilities, for one block of predictions.

A call never spans two blocks, so a block that is computed again after an interruption takes the
very same calls. Without an engine the calls are made in this process; an engine makes the same
calls for the same blocks elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.foundation.threads import made_ahead
from relook.foundation.watchdog import watched
from relook.io.fingerprint import JSON, fingerprint
from relook.models.base import Predictor
from relook.numerics.calibration import LOG_FLOOR
from relook.policy import SubPolicy
from relook.policy.views import apply_subpolicy
from relook.predictions.store import VIEWS, BatchPlan, PredictionBlock, PredictionStore
from relook.transforms.full_images import FullImages, content_of
from relook.version import __version__

Images = Tensor | NDArray[np.uint8] | FullImages

ENGINES = ("local", "ray")

Done = Generator[tuple[PredictionBlock, NDArray[np.float32] | None], None, None]
"""Finished blocks with log-probabilities `[view, image, class]`, or None if a worker has stored
them."""

_GPU_BATCH = 256
CPU_BATCH = 64  # small images: more would not stay in the cache between layers
_MIN_BATCH = 8
_BATCH_PIXELS = 1 << 20  # of a batch on the CPU: 64 images of 96×96, 16 of 224×224
_GROUP = 16
_PACKING = "views of a block, one after another, in full batches"
_SUM_TOLERANCE = 1e-3


@dataclass(frozen=True)
class View:
    """One view to predict: a sub-policy, and the view index that its fresh draws depend on."""

    subpolicy: SubPolicy
    index: int


@dataclass(frozen=True)
class Segment:
    """One view of consecutive images: a model call or a part of one."""

    view: int
    images: slice

    @property
    def size(self) -> int:
        """The number of images."""
        return int(self.images.stop - self.images.start)


@dataclass(frozen=True)
class Call:
    """Views of one block that go through the model at once."""

    segments: tuple[Segment, ...]
    ends_block: PredictionBlock | None  # the block, if this is its last call

    @property
    def size(self) -> int:
        """The number of views."""
        return sum(segment.size for segment in self.segments)


def calls_of(block: PredictionBlock, batch: int) -> Iterator[Call]:
    """Cut a block's views, one after another, into full model calls and a last one."""
    images = block.images.stop - block.images.start
    rows = (block.views.stop - block.views.start) * images
    for begin in range(0, rows, batch):
        end = min(begin + batch, rows)
        segments = []
        for view in range(begin // images, -(-end // images)):
            start, stop = max(begin, view * images), min(end, (view + 1) * images)
            offset = block.images.start - view * images
            part = slice(start + offset, stop + offset)
            segments.append(Segment(block.views.start + view, part))
        yield Call(tuple(segments), block if end == rows else None)


@dataclass(frozen=True)
class Passes:
    """A model and the views it is to predict; the images' `indices` decide the fresh draws."""

    predictor: Predictor
    images: Images
    indices: NDArray[np.int64]
    views: tuple[View, ...]
    seed: int

    def make(self, call: Call) -> Tensor:
        """Return the call's views, uint8 `[n, c, h, w]`."""
        made = [self._view(segment) for segment in call.segments]
        views = made[0] if len(made) == 1 else torch.cat(made)
        # Copies from pinned memory run while the GPU computes.
        return views.pin_memory() if _on_gpu(self.predictor) and not views.is_cuda else views

    def run(self, call: Call, views: Tensor, classes: int | None) -> NDArray[np.float32]:
        """Return checked log-probabilities `[n, class]` of one model call."""
        try:
            with watched(lambda: self._where(call)):
                outputs = self.predictor(views)
        except Exception as error:
            raise RelookError(
                f"the model failed on {self._where(call)}: {_one_line(error)}"
            ) from error
        return self._check(outputs, call, classes)

    def one(self, view: int, part: slice) -> NDArray[np.float32]:
        """Return log-probabilities `[image, class]` of one view of some images."""
        call = Call((Segment(view, part),), None)
        return self.run(call, self.make(call), None)

    def blocks(
        self, blocks: Iterable[PredictionBlock], plan: BatchPlan, add: Callable[[int], None]
    ) -> Generator[tuple[PredictionBlock, NDArray[np.float32]], None, None]:
        """Yield each block with its log-probabilities `[view, image, class]`.

        The next views are made while the model runs; `add` counts passes.
        """
        calls = [call for block in blocks for call in calls_of(block, plan.batch)]
        with made_ahead(self.make, calls) as made:
            rows: list[NDArray[np.float32]] = []
            for call, views in zip(calls, made, strict=True):
                rows.append(self.run(call, views, plan.classes))
                add(call.size)
                if call.ends_block is not None:
                    shape = (*call.ends_block.shape, plan.classes)
                    yield call.ends_block, np.concatenate(rows).reshape(shape)
                    rows = []

    def plan(self, batch: int | None) -> BatchPlan:
        """Return the batch plan; a model without a number of classes predicts a batch for it."""
        batch = self.automatic_batch() if batch is None else batch
        classes = getattr(self.predictor, "classes", None)
        if classes is None:
            part = slice(0, min(max(1, batch), len(self.indices)))
            classes = self.one(0, part).shape[1]
        return BatchPlan(len(self.views), len(self.indices), classes, batch, _GROUP)

    def automatic_batch(self) -> int:
        """Return a batch size by a fixed rule, so that it is the same in every run."""
        if _on_gpu(self.predictor) or on_other_gpus():
            return _GPU_BATCH
        height, width = self.images.shape[2:]
        fits = max(1, _BATCH_PIXELS // (int(height) * int(width)))
        return min(CPU_BATCH, max(_MIN_BATCH, 1 << (fits.bit_length() - 1)))

    def manifest(self) -> dict[str, JSON]:
        """Return everything that the predictions depend on, for the store's manifest."""
        pool = [(asdict(view.subpolicy), draw_index(view)) for view in self.views]
        seeds = [self.seed if index is not None else None for _, index in pool]
        return {
            "version": __version__,
            "pool": fingerprint(pool),
            "model": self.predictor.fingerprint,
            "data": fingerprint(content_of(self.images), self.indices),
            "seed": self.seed,
            "calls": _PACKING,
            VIEWS: [fingerprint(*view) for view in zip(pool, seeds, strict=True)],
        }

    def _view(self, segment: Segment) -> Tensor:
        view, part = self.views[segment.view], segment.images
        images = ready(self.images[part])
        return apply_subpolicy(view.subpolicy, images, self.indices[part], self.seed, view.index)

    def _check(self, outputs: object, call: Call, classes: int | None) -> NDArray[np.float32]:
        """Return the model's outputs as floored log-probabilities, or raise if they are wrong."""
        if isinstance(outputs, Tensor):
            outputs = outputs.detach().float().cpu().numpy()
        expected = f"[{call.size}, {'class' if classes is None else classes}]"
        if not isinstance(outputs, np.ndarray):
            got = f"a {type(outputs).__name__}"
            raise _bad_output(got, self._where(call), expected)
        shape = outputs.shape
        if len(shape) != 2 or shape[0] != call.size or classes not in (None, shape[1]):
            raise _bad_output(f"shape {list(shape)}", self._where(call), expected)
        log_probs = outputs.astype(np.float32)
        for fault, rows in _faults(log_probs).items():
            if rows.any():
                raise _bad_output(fault, self._where_rows(call, rows), expected)
        return np.maximum(log_probs, np.float32(LOG_FLOOR))

    def _where(self, call: Call) -> str:
        """Name the images and the views of a call."""
        first, last = call.segments[0], call.segments[-1]
        if first is last:
            return self._named(first.view, self.indices[first.images])
        places = sorted({i for s in call.segments for i in range(s.images.start, s.images.stop)})
        images = _images_named(self.indices[places])
        return (
            f"{images}, views “{self.views[first.view].subpolicy}” "
            f"to “{self.views[last.view].subpolicy}”"
        )

    def _where_rows(self, call: Call, rows: NDArray[np.bool_]) -> str:
        """Name the images of the first view that has such rows."""
        begin = 0
        for segment in call.segments:
            own = rows[begin : begin + segment.size]
            if own.any():
                return self._named(segment.view, self.indices[segment.images][own])
            begin += segment.size
        raise AssertionError("no such row")

    def _named(self, view: int, indices: NDArray[np.int64]) -> str:
        return f"{_images_named(indices)}, view “{self.views[view].subpolicy}”"


def ready(images: Images) -> Tensor | FullImages:
    """Return images to make views of: a tensor, or images of full size."""
    # Copied, as arrays may be read-only, such as memory-mapped files.
    return torch.from_numpy(np.array(images)) if isinstance(images, np.ndarray) else images


def draw_index(view: View) -> int | None:
    """Return the index that a view's fresh draws depend on; None if it is fixed."""
    return None if view.subpolicy.is_fixed else view.index


def _on_gpu(predictor: Predictor) -> bool:
    device = getattr(predictor, "device", None)
    return isinstance(device, torch.device) and device.type == "cuda"


def _faults(log_probs: NDArray[np.float32]) -> dict[str, NDArray[np.bool_]]:
    """Return a mask of the rows with each fault."""
    with np.errstate(over="ignore"):
        sums = np.exp(log_probs, dtype=np.float64).sum(axis=1)
    return {
        "NaN": np.isnan(log_probs).any(axis=1),
        "+∞": np.isposinf(log_probs).any(axis=1),
        "probabilities that do not sum to 1": ~(np.abs(sums - 1) <= _SUM_TOLERANCE),
    }


def _bad_output(got: str, where: str, expected: str) -> RelookError:
    return RelookError(
        f"the model returned {got} for {where}: expected normalised log-probabilities {expected}"
    )


def _images_named(indices: NDArray[np.int64]) -> str:
    first, last, count = int(indices[0]), int(indices[-1]), len(indices)
    if count == 1:
        return f"image {first}"
    if (np.diff(indices) == 1).all():
        return f"images {first}…{last}"
    shown = ", ".join(str(index) for index in indices[:3])
    return f"images {shown}" if count <= 3 else f"images {shown} and {count - 3} more"


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    text = text if len(text) <= 300 else text[:299] + "…"
    return text if isinstance(error, RelookError) else f"{type(error).__name__}: {text}"


class Engine(Protocol):
    """Makes the passes in place of this process."""

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
        """Yield each block, in any order; `add` counts passes, `store` is their destination."""


_ENGINE: ContextVar[Engine | None] = ContextVar("relook_engine", default=None)


@contextmanager
def running_on(engine: Engine | None) -> Iterator[None]:
    """Make this thread's passes on the engine within a `with` block; None: in this process."""
    token = _ENGINE.set(engine)
    try:
        yield
    finally:
        _ENGINE.reset(token)


def on_other_gpus() -> bool:
    """Whether an engine makes the passes on GPUs."""
    engine = _ENGINE.get()
    return engine is not None and engine.gpu


def current_engine() -> Engine | None:
    """Return the engine that passes are made on, None for this process."""
    return _ENGINE.get()
