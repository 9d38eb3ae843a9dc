"""Predictions of earlier runs, taken over where the same model calls would be made again.

A model's outputs depend on its batches in the last digits. A full batch of images goes through the
model one view at a time, so a view's predictions of it are the same whatever else is predicted. The
last images, fewer than a batch, share calls between the views of a block: they are taken over only
where all views of the block are the same, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


REUSED: ContextVar[Reused | None] = ContextVar("relook_reused", default=None)
"""Where the stores of this thread may take predictions from; None: they make their own."""


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:  # gone, or not ours to look at
        return None


@contextmanager
def reusing(run: Path) -> Iterator[Reused]:
    """Take over what the runs next to this one have predicted, within the block."""
    run = run.absolute()
    own = _owner(run)  # what others put into a shared directory is not trusted
    beside = (path for path in run.parent.glob("*/*.zarr") if path.parent != run)
    reused = Reused(tuple(sorted(path for path in beside if _owner(path) == own)))
    token = REUSED.set(reused)
    try:
        yield reused
    finally:
        REUSED.reset(token)


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


Taken = list[tuple[Source, list[int]]]
"""The views of a block that are known, by where from."""


@dataclass(frozen=True)
class Known:
    """What other stores know of a store's blocks; a view is taken from the first that has it."""

    sources: tuple[Source, ...]
    reused: Reused
    _found: dict[tuple[int, int], Taken] = field(default_factory=dict)

    def made(self, blocks: Iterable[PredictionBlock]) -> list[PredictionBlock]:
        """Return the parts of blocks that the model has to make."""
        found = []
        for block in blocks:
            known = sorted(chain(*(views for _, views in self._taken(block))))
            ends = pairwise([block.views.start - 1, *known, block.views.stop])
            gaps = [slice(one + 1, other) for one, other in ends if other - one > 1]
            found += [replace(block, views=gap) for gap in gaps]
        return found

    def completed(
        self, blocks: Sequence[PredictionBlock], made: Done, add: Callable[[int], None]
    ) -> Done:
        """Yield each block, of what is known and of what is `made`; `add` counts known passes."""
        with closing(made):
            for block in blocks:
                rows: dict[int, NDArray[Any]] = {}
                for source, views in self._taken(block):
                    rows |= zip(views, source.read(block, views), strict=True)
                    self.reused.runs[Path(source.store.name).parent.name] = None
                self.reused.passes += len(rows) * block.shape[1]
                add(len(rows) * block.shape[1])
                for part in self.made([block]):
                    _, log_probs = next(made)
                    if log_probs is not None:  # it was made in this process
                        rows |= zip(
                            range(part.views.start, part.views.stop), log_probs, strict=True
                        )
                yield block, np.stack([rows[view] for view in sorted(rows)]).astype(np.float32)

    def _taken(self, block: PredictionBlock) -> Taken:
        """Return what is taken from where: decided once, as other runs may be going on."""
        if block.start not in self._found:
            self._found[block.start] = self._look_for(block)
        return self._found[block.start]

    def _look_for(self, block: PredictionBlock) -> Taken:
        left, taken = set(range(block.views.start, block.views.stop)), []
        for source in self.sources:
            views = [view for view in source.known(block) if view in left] if left else []
            left -= set(views)
            taken += [(source, views)] if views else []
        return taken


def known_elsewhere(passes: Passes, store: PredictionStore) -> Known | None:
    """Return what the stores in use know of the same model and images, if anything."""
    reused = REUSED.get()
    if reused is None or current_engine() is not None:
        return None
    found = (_source(path, store) for path in reused.stores)
    sources = [source for source in found if source is not None and source.answers_as(passes)]
    return Known(tuple(sources), reused) if sources else None


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
