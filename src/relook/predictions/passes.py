"""Views → predictor → log-probabilities: every pass of the model over a pool is made here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError, RunError
from relook.foundation.ahead import made_ahead
from relook.foundation.progress import Progress
from relook.foundation.watchdog import watched
from relook.io.fingerprint import JSON, fingerprint
from relook.numerics.calibration import LOG_FLOOR
from relook.numerics.randomness import check_seed
from relook.policy import SubPolicy
from relook.policy.views import apply_subpolicy
from relook.predictions.calls import Call, Segment, calls_of
from relook.predictions.engines.base import Done, current_engine, on_other_gpus
from relook.predictions.store import Block, Plan, PredictionStore
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages, content_of
from relook.version import __version__

if TYPE_CHECKING:
    from relook.models.base import Predictor

Images = Tensor | NDArray[np.uint8] | FullImages

_GPU_BATCH = 256
_CPU_BATCH = 64  # of small images: more of them leave the cache between layers
_LEAST_BATCH = 8
_BATCH_PIXELS = 1 << 20  # of a batch on the CPU: 64 images of 96×96, 16 of 224×224
_GROUP = 16
_PACKING = "views of a block, one after another, in full batches"
_SUM_TOLERANCE = 1e-3
_LEAST_COMPARED = -10.0
_SAME = 0.05  # of a log-probability; float16, other batches and threads differ by far less
_ESTIMATE_IMAGES = 32
_ESTIMATE_VIEWS = 4


@dataclass(frozen=True)
class View:
    """One view to predict: a sub-policy, and the view index that its fresh draws depend on."""

    subpolicy: SubPolicy
    index: int


@dataclass(frozen=True)
class Passes:
    """What the model is to see: views of images, whose indices decide the fresh draws."""

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
        return self._checked(outputs, call, classes)

    def one(self, view: int, part: slice) -> NDArray[np.float32]:
        """Return log-probabilities `[image, class]` of one view of some images."""
        call = Call((Segment(view, part),), None)
        return self.run(call, self.make(call), None)

    def blocks(
        self, blocks: Iterable[Block], plan: Plan, add: Callable[[int], None]
    ) -> Generator[tuple[Block, NDArray[np.float32]], None, None]:
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

    def plan(self, batch: int | None) -> Plan:
        """Return the batch plan; a model that cannot tell its classes is asked with a batch."""
        batch = self.automatic_batch() if batch is None else batch
        classes = getattr(self.predictor, "classes", None)
        if classes is None:
            part = slice(0, min(max(1, batch), len(self.indices)))
            engine = current_engine()
            if engine is None:
                classes = self.one(0, part).shape[1]
            else:
                classes = engine.classes(self, part.stop)
        return Plan(len(self.views), len(self.indices), classes, batch, _GROUP)

    def automatic_batch(self) -> int:
        """Return a batch size by rule, not by the clock: the same at every run."""
        if _on_gpu(self.predictor) or on_other_gpus():
            return _GPU_BATCH
        height, width = self.images.shape[2:]
        fits = max(1, _BATCH_PIXELS // (int(height) * int(width)))
        return min(_CPU_BATCH, max(_LEAST_BATCH, 1 << (fits.bit_length() - 1)))

    def manifest(self, extra: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return what the predictions depend on, as the store records it."""
        pool = [(asdict(view.subpolicy), _draw_index(view)) for view in self.views]
        return {
            **extra,
            "version": __version__,
            "pool": fingerprint(pool),
            "model": self.predictor.fingerprint,
            "data": fingerprint(content_of(self.images), self.indices),
            "seed": self.seed,
            "calls": _PACKING,
        }

    def _view(self, segment: Segment) -> Tensor:
        view, part = self.views[segment.view], segment.images
        images = _ready(self.images[part])
        return apply_subpolicy(view.subpolicy, images, self.indices[part], self.seed, view.index)

    def _checked(self, outputs: object, call: Call, classes: int | None) -> NDArray[np.float32]:
        """Return the model's outputs as log-probabilities, floored, or say what is wrong."""
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


@dataclass
class _Counter:
    """Passes that are done, reported as they grow."""

    total: int
    report: Progress | None
    done: int = 0

    def add(self, passes: int) -> None:
        """Count more passes as done."""
        self.done += passes
        if self.report is not None:
            self.report(self.done, self.total)


def predict_views(
    predictor: Predictor,
    images: Images,
    views: Sequence[View],
    *,
    seed: int,
    store_path: str | Path | None = None,
    batch: int | None = None,
    indices: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    progress: Progress | None = None,
    manifest_extra: Mapping[str, JSON] | None = None,
) -> NDArray[np.float32]:
    """Return log-probabilities float32 `[view, image, class]` of uint8 images `[n, c, h, w]`.

    Full-size images do as well: each view is cut from them. `indices` are the images' places
    in their data set (default 0 … n − 1); `batch` is how many views go through the model at
    once (default: by the images' size). Equal views run once. With a `store_path` what is done
    stays on disk and an interrupted call goes on there; `manifest_extra` is compared with it.
    `progress` is called with the passes done and all passes, one an image and distinct view.
    """
    distinct, order = distinct_views(views)
    if store_path is not None:
        store = fill_store(
            predictor,
            images,
            distinct,
            store_path,
            seed=seed,
            batch=batch,
            indices=indices,
            progress=progress,
            manifest_extra=manifest_extra,
        )
        return store.read(order)
    passes = _passes(predictor, images, distinct, indices, seed)
    plan = passes.plan(batch)
    counter = _Counter(plan.views * plan.images, progress)
    counter.add(0)
    result = np.empty(plan.shape, dtype=np.float32)
    with closing(_computed(passes, list(plan.blocks()), plan, counter.add)) as done:
        for block, log_probs in done:
            result[block.views, block.images] = log_probs
    return result if len(distinct) == len(order) else result[order]


def fill_store(
    predictor: Predictor,
    images: Images,
    views: Sequence[View],
    path: str | Path,
    *,
    seed: int,
    batch: int | None = None,
    indices: Sequence[int] | NDArray[np.integer[Any]] | None = None,
    progress: Progress | None = None,
    manifest_extra: Mapping[str, JSON] | None = None,
    precision: str = "float32",
    beside: Path | None = None,
) -> PredictionStore:
    """Return the store at `path` with every block done, for pools too large for the memory.

    As `predict_views`, but the views are stored as they are given (see `distinct_views`), in
    float32 or float16 (`store.stored_type`). A store by URL has its local files in `beside`.
    """
    passes = _passes(predictor, images, views, indices, seed)
    plan = passes.plan(batch)
    manifest = passes.manifest(manifest_extra or {})
    store = PredictionStore.open(path, manifest, plan, precision, beside)
    missing = [block for block in plan.blocks() if not store.is_done(block)]
    if missing:
        _check_same_answers(passes, store)
    counter = _Counter(plan.views * plan.images, progress)
    counter.add(counter.total - sum(math.prod(block.shape) for block in missing))
    with closing(_computed(passes, missing, plan, counter.add, store)) as done:
        for block, log_probs in done:
            if log_probs is None:
                store.mark_done(block)
            else:
                store.write(block, log_probs)
    return store


def _computed(
    passes: Passes,
    blocks: Sequence[Block],
    plan: Plan,
    add: Callable[[int], None],
    store: PredictionStore | None = None,
) -> Done:
    """Return the blocks as they are finished, by the engine in use or in this process."""
    engine = current_engine()
    if engine is None:
        return passes.blocks(blocks, plan, add)
    return engine.blocks(passes, blocks, plan, add, store)


def _check_same_answers(passes: Passes, store: PredictionStore) -> None:
    """Raise where the model, by its weights the same, no longer answers as it did before."""
    plan = store.plan
    done = next(filter(store.is_done, plan.blocks()), None)
    if done is None:
        return
    call = next(calls_of(done, plan.batch))
    now = _answers(passes, call, done, plan)
    before = store.read_block(done).reshape(-1, plan.classes)[: call.size].astype(np.float32)
    apart = np.abs(np.maximum(now, _LEAST_COMPARED) - np.maximum(before, _LEAST_COMPARED)).max()
    if apart > _SAME:
        raise RunError(
            f"the model no longer answers as it did when {store.name} was begun: its "
            f"log-probabilities differ by up to {apart:.2g}: use another --out or delete "
            f"{store.name}"
        )


def _answers(passes: Passes, call: Call, block: Block, plan: Plan) -> NDArray[np.float32]:
    """Return what the model says now to a block's first call, `[n, class]`."""
    if current_engine() is None:
        return passes.run(call, passes.make(call), plan.classes)
    first = block.views.start
    part = Block(slice(first, first + len(call.segments)), block.images)
    with closing(_computed(passes, [part], plan, lambda count: None)) as done:
        rows = np.concatenate([log_probs for _, log_probs in done if log_probs is not None])
    return rows.reshape(-1, plan.classes)[: call.size]


def distinct_views(views: Iterable[View]) -> tuple[tuple[View, ...], list[int]]:
    """Return the views that differ, and for each view its place among them.

    A fixed sub-policy makes the same view under every index; a fresh one does not.
    """
    places: dict[tuple[SubPolicy, int | None], int] = {}
    distinct: list[View] = []
    order = []
    for view in views:
        key = (view.subpolicy, _draw_index(view))
        if key not in places:
            places[key] = len(distinct)
            distinct.append(view)
        order.append(places[key])
    return tuple(distinct), order


def estimate(
    predictor: Predictor,
    images: Images,
    views: Sequence[View],
    *,
    seed: int,
    batch: int | None = None,
) -> float:
    """Return the seconds that a pass takes, view and model, measured on a few short batches.

    Each is run twice and its faster time counts: the first run compiles what the view needs.
    """
    passes = _passes(predictor, images, views, None, seed)
    part = slice(0, min(batch or _CPU_BATCH, _ESTIMATE_IMAGES, len(passes.indices)))
    sample = range(0, len(passes.views), -(-len(passes.views) // _ESTIMATE_VIEWS))
    fastest = [min(_seconds(passes, view, part) for _ in range(2)) for view in sample]
    return sum(fastest) / (len(sample) * part.stop)


def _seconds(passes: Passes, view: int, images: slice) -> float:
    start = time.perf_counter()
    passes.one(view, images)
    return time.perf_counter() - start


def _passes(
    predictor: Predictor,
    images: Images,
    views: Sequence[View],
    indices: Sequence[int] | NDArray[np.integer[Any]] | None,
    seed: int,
) -> Passes:
    if len(views) == 0:
        raise RelookError("expected at least 1 view to predict, got none")
    if not isinstance(images, Tensor | np.ndarray | FullImages) or len(images) == 0:
        known = isinstance(images, Tensor | np.ndarray | FullImages)
        got = "none" if known else f"a {type(images).__name__}"
        raise RelookError(f"expected uint8 images [n, c, h, w], at least 1, got {got}")
    first = _ready(images[:1])
    if isinstance(first, Tensor):
        check_images(first)
    places = np.arange(len(images)) if indices is None else np.asarray(indices)
    if places.shape != (len(images),) or places.dtype.kind not in "iu" or places.min() < 0:
        raise RelookError(
            f"expected {len(images)} indices ≥ 0, one an image, got {places.dtype} "
            f"of shape {list(places.shape)}"
        )
    return Passes(predictor, images, places.astype(np.int64), tuple(views), check_seed(seed))


def _ready(images: Images) -> Tensor | FullImages:
    # The copy is for arrays that must not be written to, such as memory-mapped files.
    return torch.from_numpy(np.array(images)) if isinstance(images, np.ndarray) else images


def _draw_index(view: View) -> int | None:
    return None if view.subpolicy.is_fixed else view.index


def _on_gpu(predictor: Predictor) -> bool:
    device = getattr(predictor, "device", None)
    return isinstance(device, torch.device) and device.type == "cuda"


def _faults(log_probs: NDArray[np.float32]) -> dict[str, NDArray[np.bool_]]:
    """Return for each fault the rows that have it."""
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
