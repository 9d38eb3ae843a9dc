"""Reuse of predictions by earlier runs whose model calls are exactly the same.

A model's outputs depend on its batches in the last digits. A full batch of images goes through the
model one view at a time, so a view's predictions of it do not depend on the other views. The last
images, fewer than a batch, share calls between the views of a block: they are reused only if all
views of the block are the same, in the same order.
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

_MAY_DIFFER = ("pool", "seed", VIEWS, "plan")  # a view's fingerprint has the seed of fresh draws


@dataclass
class Reused:
    """The stores to reuse predictions from; the passes saved, and the runs that they are from."""

    stores: tuple[Path, ...]
    passes: int = 0
    runs: dict[str, None] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.passes:,} model passes were known from {', '.join(self.runs)}"


REUSED: ContextVar[Reused | None] = ContextVar("relook_reused", default=None)
"""The stores that this thread may reuse predictions from; None: no reuse."""


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:  # gone, or not accessible
        return None


@contextmanager
def reusing(run: Path) -> Iterator[Reused]:
    """Reuse the predictions of runs next to this one, within a `with` block."""
    run = run.absolute()
    owner = _owner(run)  # files of other users of a shared directory are not trusted
    beside = (path for path in run.parent.glob("*/*.zarr") if path.parent != run)
    reused = Reused(tuple(sorted(path for path in beside if _owner(path) == owner)))
    token = REUSED.set(reused)
    try:
        yield reused
    finally:
        REUSED.reset(token)


@dataclass(frozen=True)
class Source:
    """Another store that has some of the views, as `rows`: {view here: view there}."""

    store: PredictionStore
    rows: Mapping[int, int]

    def known(self, block: PredictionBlock) -> list[int]:
        """Return the views of a block that it has, from the same calls as would be made here."""
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
        """Return the other store's block with this view of the same images."""
        plan, row = self.store.plan, self.rows[view]
        start = row - row % plan.group
        return replace(block, views=slice(start, min(start + plan.group, plan.views)))

    def agrees_with(self, passes: Passes) -> bool:
        """Whether the model reproduces one of the stored calls to the last bit."""
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


SourceViews = list[tuple[Source, list[int]]]
"""The views of a block that are reused, with their source."""


@dataclass(frozen=True)
class Known:
    """Other stores' predictions for a store's blocks; the first source of a view is used."""

    sources: tuple[Source, ...]
    reused: Reused
    _found: dict[tuple[int, int], SourceViews] = field(default_factory=dict)

    def missing(self, blocks: Iterable[PredictionBlock]) -> list[PredictionBlock]:
        """Return the parts of blocks that the model has to predict."""
        parts = []
        for block in blocks:
            known = sorted(chain(*(views for _, views in self._sources_of(block))))
            neighbours = pairwise([block.views.start - 1, *known, block.views.stop])
            gaps = [slice(view + 1, after) for view, after in neighbours if after - view > 1]
            parts += [replace(block, views=gap) for gap in gaps]
        return parts

    def completed(
        self, blocks: Sequence[PredictionBlock], computed: Done, add: Callable[[int], None]
    ) -> Done:
        """Yield each block, from known and newly `computed` parts; `add` counts known passes."""
        with closing(computed):
            for block in blocks:
                rows: dict[int, NDArray[Any]] = {}
                for source, views in self._sources_of(block):
                    rows |= zip(views, source.read(block, views), strict=True)
                    self.reused.runs[Path(source.store.name).parent.name] = None
                self.reused.passes += len(rows) * block.shape[1]
                add(len(rows) * block.shape[1])
                for part in self.missing([block]):
                    _, log_probs = next(computed)
                    if log_probs is not None:  # always: reuse is for this process alone
                        rows |= zip(
                            range(part.views.start, part.views.stop), log_probs, strict=True
                        )
                yield block, np.stack([rows[view] for view in sorted(rows)]).astype(np.float32)

    def _sources_of(self, block: PredictionBlock) -> SourceViews:
        """Return the sources of a block's views, decided once, as other runs may be in progress."""
        if block.start not in self._found:
            self._found[block.start] = self._look_for(block)
        return self._found[block.start]

    def _look_for(self, block: PredictionBlock) -> SourceViews:
        left, found = set(range(block.views.start, block.views.stop)), []
        for source in self.sources:
            views = [view for view in source.known(block) if view in left] if left else []
            left -= set(views)
            found += [(source, views)] if views else []
        return found


def known_elsewhere(passes: Passes, store: PredictionStore) -> Known | None:
    """Return the reusable predictions of the same model and images, if there are any."""
    reused = REUSED.get()
    if reused is None or current_engine() is not None:
        return None
    found = (_source(path, store) for path in reused.stores)
    sources = [source for source in found if source is not None and source.agrees_with(passes)]
    return Known(tuple(sources), reused) if sources else None


def _source(path: Path, store: PredictionStore) -> Source | None:
    try:
        here, there = store.manifest, place_at(path).manifest()
        exists = isinstance(there, dict) and (path / "zarr.json").is_file()
        if not exists or _compared(there) != _compared(here):
            return None
        places = {view: row for row, view in enumerate(there[VIEWS])}
        rows = {row: places[view] for row, view in enumerate(here[VIEWS]) if view in places}
        plan = replace(store.plan, views=int(there["plan"]["views"]))
        return Source(PredictionStore.attach(path, plan, str(store.dtype)), rows) if rows else None
    except (
        RelookError,
        OSError,
        KeyError,
        TypeError,
        ValueError,
    ):  # damaged: its own run reports it
        return None


def _compared(manifest: Mapping[str, Any]) -> dict[str, Any]:
    same = {name: value for name, value in manifest.items() if name not in _MAY_DIFFER}
    return {**same, "plan": {**manifest["plan"], "views": None}}
