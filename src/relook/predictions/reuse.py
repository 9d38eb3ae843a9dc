"""Predictions of earlier runs, taken over where the same model calls would be made again.

A model's outputs depend on its batches in the last digits. A full batch of images goes through the
model one view at a time, so a view's predictions of it are the same whatever else is predicted. The
last images, fewer than a batch, share calls between the views of a block: they are taken over only
where all views of the block are the same, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relook.errors import RelookError
from relook.predictions.locations import place_at
from relook.predictions.model_calls import Done, Passes, calls_of, current_engine
from relook.predictions.store import VIEWS, PredictionBlock, PredictionStore

_MAY_DIFFER = ("pool", "seed", VIEWS, "plan")  # the seed of fresh draws is in a view's mark


@dataclass
class Reused:
    """Where predictions may be taken from; how many passes that has saved, and in which runs."""

    stores: tuple[Path, ...]
    passes: int = 0
    runs: dict[str, None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.passes:,} model passes were known from {', '.join(self.runs)}"


_REUSED: ContextVar[Reused | None] = ContextVar("relook_reused", default=None)


@contextmanager
def reusing(run: Path) -> Iterator[Reused]:
    """Take over what the runs next to this one have predicted, within the block."""
    run = run.absolute()
    own = run.stat().st_uid  # what others put into a shared directory is not trusted
    beside = (path for path in run.parent.glob("*/*.zarr") if path.parent != run)
    reused = Reused(tuple(sorted(path for path in beside if path.stat().st_uid == own)))
    token = _REUSED.set(reused)
    try:
        yield reused
    finally:
        _REUSED.reset(token)


@dataclass(frozen=True)
class Source:
    """A store that has some of the views: `rows` says which, {view here: view there}."""

    store: PredictionStore
    rows: Mapping[int, int]

    def known(self, block: PredictionBlock) -> list[int]:
        """Return which views of a block it has, made by the calls that would be made here."""
        views = range(block.views.start, block.views.stop)
        found = [v for v in views if v in self.rows and self.store.is_done(self._there(v, block))]
        if block.shape[1] == self.store.plan.batch or not found:
            return found
        there = self._there(found[0], block).views
        same = [self.rows[view] for view in found] == list(range(there.start, there.stop))
        return found if same and len(found) == len(views) else []

    def read(self, block: PredictionBlock, views: Sequence[int]) -> NDArray[np.floating[Any]]:
        """Return predictions `[view, image, class]` of some views of a block."""
        blocks = {(there := self._there(view, block)).views.start: there for view in views}
        stored = {start: self.store.read_block(there) for start, there in blocks.items()}
        rows = [self.rows[view] for view in views]
        group = self.store.plan.group
        return np.stack([stored[row - row % group][row % group] for row in rows])

    def _there(self, view: int, block: PredictionBlock) -> PredictionBlock:
        """Return the block of the other store that has a view of the same images."""
        plan, row = self.store.plan, self.rows[view]
        start = row - row % plan.group
        return replace(block, views=slice(start, min(start + plan.group, plan.views)))

    def answers_as(self, passes: Passes) -> bool:
        """Whether the model says now, to the last bit, what it said to a call that is known."""
        plan = replace(self.store.plan, views=len(passes.views))
        for block in plan.blocks():
            known = self.known(block)
            if known:
                views = slice(known[0], block.views.stop)
                call = next(calls_of(replace(block, views=views), plan.batch))
                now = passes.run(call, passes.make(call), plan.classes).astype(self.store.dtype)
                there = self.read(block, known).reshape(-1, plan.classes)
                return np.array_equal(now, there[: call.size])
        return False


@dataclass(frozen=True)
class Task:
    """A block to store: the views that are known, with where from; the model makes the others."""

    block: PredictionBlock
    taken: tuple[tuple[Source, list[int]], ...] = ()

    @property
    def made(self) -> list[PredictionBlock]:
        """The parts of the block that are not known."""
        first, last = self.block.views.start, self.block.views.stop
        known = sorted(chain([first - 1, last], *(views for _, views in self.taken)))
        gaps = [slice(one + 1, other) for one, other in pairwise(known) if other - one > 1]
        return [replace(self.block, views=gap) for gap in gaps]


def tasks(passes: Passes, store: PredictionStore, blocks: Sequence[PredictionBlock]) -> list[Task]:
    """Return what is to be done for blocks of a store, as far as other stores know them."""
    sources = _sources(passes, store) if blocks else []
    found = []
    for block in blocks:
        left, taken = set(range(block.views.start, block.views.stop)), []
        for source in sources:
            views = [view for view in source.known(block) if view in left] if left else []
            left -= set(views)
            taken += [(source, views)] if views else []
        found.append(Task(block, tuple(taken)))
    return found


def completed(
    todo: Sequence[Task],
    made: Callable[[Sequence[PredictionBlock]], Done],
    add: Callable[[int], None],
) -> Done:
    """Yield each task's block: what is known, and what `made` makes; `add` counts known passes."""
    if not any(task.taken for task in todo):
        yield from made([task.block for task in todo])
        return
    reused = _REUSED.get()
    with closing(made([part for task in todo for part in task.made])) as parts:
        for task in todo:
            rows: dict[int, NDArray[np.floating[Any]]] = {}
            for source, views in task.taken:
                rows |= zip(views, source.read(task.block, views), strict=True)
                if reused is not None:
                    reused.runs[Path(source.store.name).parent.name] = None
            passes = len(rows) * task.block.shape[1]
            if reused is not None:
                reused.passes += passes
            add(passes)
            for part in task.made:  # in this process, so in order and not without predictions
                rows |= zip(range(part.views.start, part.views.stop), next(parts)[1], strict=True)  # type: ignore[arg-type]
            yield task.block, np.stack([rows[view] for view in sorted(rows)]).astype(np.float32)


def _sources(passes: Passes, store: PredictionStore) -> list[Source]:
    """Return the other stores of the same model and images whose views are wanted here."""
    reused = _REUSED.get()
    if reused is None or current_engine() is not None:
        return []
    found = (_source(path, store) for path in reused.stores)
    return [source for source in found if source is not None and source.answers_as(passes)]


def _source(path: Path, store: PredictionStore) -> Source | None:
    try:
        wanted = store.manifest
        there = place_at(path).manifest()
        known = isinstance(there, dict) and (path / "zarr.json").is_file()
        if not known or _compared(there) != _compared(wanted):
            return None
        places = {mark: row for row, mark in enumerate(there[VIEWS])}
        rows = {view: places[mark] for view, mark in enumerate(wanted[VIEWS]) if mark in places}
        plan = replace(store.plan, views=int(there["plan"]["views"]))
        opened = PredictionStore.attach(path, plan, str(store.dtype)) if rows else None
    except (RelookError, OSError, KeyError, TypeError, ValueError):  # it will say so itself
        return None
    return None if opened is None else Source(opened, rows)


def _compared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    same = {name: one for name, one in manifest.items() if name not in _MAY_DIFFER}
    return {**same, "plan": {**manifest["plan"], "views": None}}
