"""All passes of a model over a pool: into memory or a store, here or on an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError, RunError
from relook.foundation.progress import Progress, ProgressCount
from relook.models.base import Predictor
from relook.numerics.arrays import LogProbs
from relook.numerics.randomness import check_seed
from relook.policy import SubPolicy
from relook.predictions.model_calls import (
    Call,
    Done,
    Passes,
    calls_of,
    current_engine,
    draw_index,
    ready,
)
from relook.predictions.model_calls import Images as Images
from relook.predictions.model_calls import View as View
from relook.predictions.reuse import REUSED, known_elsewhere
from relook.predictions.store import BatchPlan, PredictionBlock, PredictionStore
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages

_COMPARED = 16  # passes
_COMPARISON_FLOOR = -10.0
_TOLERANCE = 0.05  # of log-probabilities; float16, batches and threads change far less
_FEWEST_ROUNDS, _LONGEST = 5, 5  # on a busy machine, these rounds may take 5 times as long
_ESTIMATE_VIEWS = 4
_ESTIMATE_SECONDS, _ESTIMATE_ROUNDS = 1.0, 16


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
) -> NDArray[np.float32]:
    """Return log-probabilities float32 `[view, image, class]` of uint8 images `[n, c, h, w]`.

    Images may also be of full size: each view is cut from them. `indices` are the images' places
    in their data set (default 0 … n − 1); `batch` is the number of views in a model call (default:
    by the images' size). Equal views run once. With a `store_path` predictions are kept on disk,
    and an interrupted call continues there. `progress` is called with the passes done and all
    passes, one per image and distinct view.
    """
    distinct, order = distinct_views(views)
    if store_path is not None:
        how: dict[str, Any] = {"batch": batch, "indices": indices, "progress": progress}
        store = fill_store(predictor, images, distinct, store_path, seed=seed, **how)
        return store.read(order)
    passes = _passes(predictor, images, distinct, indices, seed)
    plan = passes.plan(batch)
    counter = ProgressCount(plan.views * plan.images, progress)
    counter.add(0)
    result = np.empty(plan.shape, dtype=np.float32)
    with closing(_compute(passes, list(plan.blocks()), plan, counter.add)) as done:
        for block, log_probs in done:
            result[block.views, block.images] = log_probs
    return result if len(distinct) == len(order) else result[order]


@dataclass(frozen=True)
class KnownViews:
    """Distinct views of some images, with their log-probabilities `[view, image, class]`."""

    views: Sequence[View]
    log_probs: LogProbs


ReadViews = Callable[[Sequence[View]], NDArray[np.float32]]
"""Returns the log-probabilities of some views, in their order, repeats allowed."""


def predict_distinct(
    predictor: Predictor,
    images: Images,
    views: Sequence[View],
    *,
    known: KnownViews | None = None,
    store_path: str | Path | None = None,
    **how: Any,
) -> tuple[int, ReadViews]:
    """Predict each view once, except those `known`; return the number of classes, and a reader.

    The other arguments are those of `predict_views`.
    """
    known_views = () if known is None else tuple(known.views)
    distinct, _ = distinct_views([*known_views, *views])
    new = distinct[len(known_views) :]
    read_new: Callable[[list[int]], NDArray[np.float32]] | None = None
    classes = 0 if known is None else known.log_probs.shape[2]
    if new and store_path is None:
        log_probs = predict_views(predictor, images, new, **how)
        classes, read_new = log_probs.shape[2], log_probs.__getitem__
    elif new and store_path is not None:
        store = fill_store(predictor, images, new, store_path, **how)
        classes, read_new = store.plan.classes, store.read

    def read_views(wanted: Sequence[View]) -> NDArray[np.float32]:
        _, places = distinct_views([*distinct, *wanted])  # equal views have equal places
        rows = np.array(places[len(distinct) :])
        is_known = rows < len(known_views)
        result = np.empty((len(rows), len(images), classes), dtype=np.float32)
        if known is not None:
            result[is_known] = known.log_probs[rows[is_known]]
        if read_new is not None:
            result[~is_known] = read_new((rows[~is_known] - len(known_views)).tolist())
        return result

    return classes, read_views


HasNextRound = Callable[[PredictionStore | None, bool], bool]
"""Called before each round with the store of the views so far (None before the first), and whether
the round is already stored; returns whether to make it. The first is always made."""


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
    precision: str = "float32",
    beside: Path | None = None,
    has_next: HasNextRound | None = None,
) -> PredictionStore:
    """Return the store at `path` with every block done, for pools that do not fit into memory.

    As `predict_views`, but the views are stored as they are given (see `distinct_views`), in
    float32 or float16 (`store.stored_type`). A store by URL has its local files in `beside`.
    With `has_next` the views come in rounds, each on all images; the store returned has the views
    of the rounds that were made.
    """
    passes = _passes(predictor, images, views, indices, seed)
    plan = passes.plan(batch)
    store = PredictionStore.open(path, passes.manifest(), plan, precision, beside)
    missing = [block for block in plan.blocks() if not store.is_done(block)]
    _check_same_outputs(passes, store)  # even if nothing is missing: later steps use the model
    counter = ProgressCount(plan.views * plan.images, progress)
    counter.add(counter.total - sum(math.prod(block.shape) for block in missing))
    known = known_elsewhere(passes, store) if missing and REUSED.get() is not None else None
    size = plan.views if has_next is None else plan.group
    for begin in range(0, plan.views, size):
        part = [block for block in missing if begin <= block.views.start < begin + size]
        wanted = part if known is None else known.missing(part)
        if has_next is not None and not has_next(store.first(begin) if begin else None, not wanted):
            return store.first(begin)
        computed = _compute(passes, wanted, plan, counter.add, store)
        if known is not None:
            computed = known.completed(part, computed, counter.add)
        with closing(computed) as done:
            for block, log_probs in done:
                if log_probs is None:
                    store.mark_done(block)
                else:
                    store.write(block, log_probs)
    return store


def _compute(
    passes: Passes,
    blocks: Sequence[PredictionBlock],
    plan: BatchPlan,
    add: Callable[[int], None],
    store: PredictionStore | None = None,
) -> Done:
    """Compute blocks on the engine in use or in this process."""
    engine = current_engine()
    if engine is None:
        return passes.blocks(blocks, plan, add)
    return engine.blocks(passes, blocks, plan, add, store)


def _check_same_outputs(passes: Passes, store: PredictionStore) -> None:
    """Raise if the model, despite the same weights, no longer gives the stored outputs."""
    plan = store.plan
    done = next(filter(store.is_done, plan.blocks()), None)
    if done is None:
        return
    call = next(calls_of(done, min(plan.batch, _COMPARED)))
    now = _outputs_of(passes, call, done, plan)
    before = store.read_block(done).reshape(-1, plan.classes)[: call.size].astype(np.float32)
    now, before = np.maximum(now, _COMPARISON_FLOOR), np.maximum(before, _COMPARISON_FLOOR)
    difference = np.abs(now - before).max()
    if difference > _TOLERANCE:
        raise RunError(
            f"the model no longer answers as it did when {store.name} was begun: its "
            f"log-probabilities differ by up to {difference:.2g}: use another directory or delete "
            f"{store.name}"
        )


def _outputs_of(
    passes: Passes, call: Call, block: PredictionBlock, plan: BatchPlan
) -> NDArray[np.float32]:
    """Return the model's outputs for a block's first call, `[n, class]`."""
    if current_engine() is None:
        return passes.run(call, passes.make(call), plan.classes)
    first = block.views.start
    part = PredictionBlock(slice(first, first + len(call.segments)), block.images)
    with closing(_compute(passes, [part], plan, lambda count: None)) as done:
        rows = np.concatenate([log_probs for _, log_probs in done if log_probs is not None])
    return rows.reshape(-1, plan.classes)[: call.size]


def distinct_views(views: Iterable[View]) -> tuple[tuple[View, ...], list[int]]:
    """Return the distinct views, and each view's place among them.

    A fixed sub-policy makes the same view under every index; a fresh one does not.
    """
    places: dict[tuple[SubPolicy, int | None], int] = {}
    distinct: list[View] = []
    order = []
    for view in views:
        key = (view.subpolicy, draw_index(view))
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
    """Return the seconds of a pass: the median of some rounds with a few views of a batch.

    As always, views are made while the model runs. The first round, which compiles the views'
    transforms, does not count, and single rounds that other work disturbs do not matter.
    """
    every = _passes(predictor, images, views, None, seed)
    part = min(every.automatic_batch() if batch is None else batch, len(images))
    sample = views[:: -(-len(views) // _ESTIMATE_VIEWS)]
    passes = _passes(predictor, images[:part], sample, None, seed)
    plan = passes.plan(batch)

    def take() -> list[float]:
        start = time.perf_counter()
        list(passes.blocks(plan.blocks(), plan, lambda count: None))
        return [time.perf_counter() - start]

    take()
    times = timed_rounds(
        take, seconds=_ESTIMATE_SECONDS, rounds=_ESTIMATE_ROUNDS, clock=time.perf_counter
    )
    return float(np.median(times)) / (len(sample) * part)


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
    first = ready(images[:1])
    if isinstance(first, Tensor):
        check_images(first)
    places = np.arange(len(images)) if indices is None else np.asarray(indices)
    if places.shape != (len(images),) or places.dtype.kind not in "iu" or places.min() < 0:
        raise RelookError(
            f"expected {len(images)} indices ≥ 0, one per image, got {places.dtype} "
            f"of shape {list(places.shape)}"
        )
    return Passes(predictor, images, places.astype(np.int64), tuple(views), check_seed(seed))
