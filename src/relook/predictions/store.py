"""Predictions on disk: a checksummed Zarr array with a manifest, which can be resumed."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec

from relook.errors import FileFormatError, RelookError, RunError, unknown_name
from relook.foundation.threads import made_ahead
from relook.io.fingerprint import JSON, differences
from relook.numerics.arrays import LogProbs
from relook.predictions.locations import (
    MANIFEST,
    Bucket,
    Directory,
    Place,
    failures,
    place_at,
    reason,
)

_FORMAT: Mapping[str, JSON] = {"format": "relook predictions", "format_version": 1}
_CHECKSUM_BYTES = 4  # in a chunk
VIEWS = "views"
"""The manifest's list of each view's fingerprint, for reuse; stores are compared by `pool`."""

_READERS = 16  # concurrent requests to an object store

Precision = Literal["auto", "float16", "float32"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
HALF_FROM = 201
"""From this many classes on, "auto" stores float16."""


def stored_type(precision: str, classes: int) -> str:
    """Return the type that predictions are stored in: float32, or float16 for many classes.

    float16 keeps 11 bits of a log-probability: 0.0005 at −1, 0.03 at −80, the floor.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision of stored predictions", precision, PRECISIONS)
    if precision != "auto":
        return precision
    return "float16" if classes >= HALF_FROM else "float32"


@dataclass(frozen=True)
class PredictionBlock:
    """A part of the predictions that is computed and stored as a unit: views × images."""

    views: slice
    images: slice

    @property
    def shape(self) -> tuple[int, int]:
        """The number of views and images."""
        return self.views.stop - self.views.start, self.images.stop - self.images.start

    @property
    def start(self) -> tuple[int, int]:
        """The first view and image, which identify the block within a plan."""
        return self.views.start, self.images.start


@dataclass(frozen=True)
class BatchPlan:
    """How passes are divided: `batch` images per model call, `group` views per block.

    A model's outputs depend on its batches in the last digits, so stores are compared by it too.
    """

    views: int
    images: int
    classes: int
    batch: int
    group: int

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise RelookError(f"batch plan: expected {name} to be at least 1, got {value!r}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of the predictions, `[view, image, class]`."""
        return self.views, self.images, self.classes

    @property
    def chunk(self) -> tuple[int, int, int]:
        """The shape of a whole block."""
        return min(self.group, self.views), min(self.batch, self.images), self.classes

    def blocks(self) -> Iterator[PredictionBlock]:
        """Yield all blocks: batch by batch, and within a batch the whole pool."""
        for image in range(0, self.images, self.batch):
            for view in range(0, self.views, self.group):
                yield PredictionBlock(
                    slice(view, min(view + self.group, self.views)),
                    slice(image, min(image + self.batch, self.images)),
                )


class PredictionStore:
    """Log-probabilities `[view, image, class]`, float32 or float16: a checksummed chunk per block.

    After a crash, a kill or a power cut, a block is either done, with the bytes that were
    written, or not done. Half-written and damaged chunks fail their checksum and count as
    not done, so they are computed again; leftovers of a killed write are removed by a later
    `open`.

    Any number of processes may open the same store, read it and write to it; the first one writes
    its manifest. A chunk appears whole or not at all, and two writers of one block write the same
    bytes, so that they only lose time. `open` relies on file locks: on a network file system
    without them, keep to one process.

    In an object store, a chunk that is listed with its full size is done, as such a store verifies
    uploads. Its checksum is compared when it is read.
    """

    def __init__(
        self, place: Place, plan: BatchPlan, array: zarr.Array[Any], beside: Path | None = None
    ) -> None:
        self.plan = plan
        self._place = place
        self._beside = beside
        self._array = array
        self._done: set[tuple[int, int]] = set()

    @classmethod
    def open(
        cls,
        path: str | Path,
        manifest: Mapping[str, JSON],
        plan: BatchPlan,
        precision: str = "float32",
        beside: Path | None = None,
    ) -> PredictionStore:
        """Create the store, or open an existing one if its manifest and plan are the same.

        `path` may be a URL: s3://, gs://, az://, memory://. The manifest identifies the
        predictions (pool, model, data, seed, version …). `beside` is a directory for the local
        files of a store by URL.
        """
        place = place_at(path)
        dtype = stored_type(precision, plan.classes)
        record = {**_FORMAT, **manifest, "precision": dtype, "plan": asdict(plan)}
        record = json.loads(json.dumps(record))
        with place.held():
            _claim(place, record)
            array = _open_array(place, plan, dtype)
        return cls(place, plan, array, beside)

    @classmethod
    def attach(cls, path: str | Path, plan: BatchPlan, precision: str) -> PredictionStore:
        """Return a store that another process has opened, to read and write blocks."""
        place = place_at(path)
        return cls(place, plan, _open_array(place, plan, precision))

    def first(self, views: int) -> PredictionStore:
        """Return a store of the first views only: a whole number of groups, or all."""
        part = PredictionStore(
            self._place, replace(self.plan, views=views), self._array, self._beside
        )
        part._done = self._done
        return part

    @property
    def name(self) -> str:
        """The store's path or URL."""
        return self._place.name

    @property
    def manifest(self) -> dict[str, Any]:
        """The stored manifest."""
        manifest: dict[str, Any] = self._place.manifest()
        return manifest

    @property
    def path(self) -> Path:
        """The store's directory, or the one for its local files."""
        if isinstance(self._place, Directory):
            return self._place.path
        if self._beside is None:
            raise RelookError(f"expected a directory for the local files of {self.name}, got none")
        return self._beside

    @property
    def url(self) -> str | None:
        """The URL through which every machine can write; None if only this one can."""
        shared = isinstance(self._place, Bucket) and not self.name.startswith("memory:")
        return self.name if shared else None

    def is_done(self, block: PredictionBlock) -> bool:
        """Whether the block is stored, with the right checksum (verified once)."""
        if block.start not in self._done and self._is_stored(block):
            self._done.add(block.start)
        return block.start in self._done

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """The type of the stored predictions."""
        return np.dtype(str(self._array.dtype))

    def write(self, block: PredictionBlock, log_probs: NDArray[np.float32]) -> None:
        """Store the block's log-probabilities `[view, image, class]`, without NaN."""
        log_probs = np.asarray(log_probs, dtype=np.float32)
        if np.isnan(log_probs).any():
            raise RelookError("expected log-probabilities to store, got NaN among them")
        expected = (*block.shape, self.plan.classes)
        if log_probs.shape != expected:
            raise RelookError(f"expected a block of shape {expected}, got {log_probs.shape}")
        try:
            self._array[block.views, block.images] = log_probs.astype(self.dtype)
        except failures(self._place) as error:
            raise RunError(f"cannot write to {self.name}: {reason(error)}") from error
        self.mark_done(block)

    def mark_done(self, block: PredictionBlock) -> None:
        """Count a block as stored that a worker has written."""
        self._done.add(block.start)

    def read(self, views: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Return the predictions of some views (default: all), in their order, repeats allowed."""
        wanted = np.arange(self.plan.views) if views is None else np.asarray(views, dtype=np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.plan.views:
            raise RelookError(f"expected views from 0 to {self.plan.views - 1}, got {views}")
        result = np.empty((len(wanted), *self.plan.shape[1:]), dtype=np.float32)
        for block in self.plan.blocks():
            rows = np.flatnonzero((wanted >= block.views.start) & (wanted < block.views.stop))
            if rows.size:
                log_probs = self.read_block(block)
                result[rows, block.images] = log_probs[wanted[rows] - block.views.start]
        return result

    def read_all(self) -> NDArray[np.floating[Any]]:
        """Return all predictions, of the stored type."""
        result = np.empty(self.plan.shape, dtype=self.dtype)
        blocks = list(self.plan.blocks())
        with self.read_blocks(blocks) as read:
            for block, log_probs in zip(blocks, read, strict=True):
                result[block.views, block.images] = log_probs
        return result

    def read_blocks(
        self, blocks: Sequence[PredictionBlock]
    ) -> AbstractContextManager[Iterator[NDArray[np.floating[Any]]]]:
        """Read blocks in their order; several at a time over a network."""
        count = _READERS if isinstance(self._place, Bucket) else 1
        return made_ahead(self.read_block, blocks, ahead=count, threads=count)

    def read_block(self, block: PredictionBlock) -> NDArray[np.floating[Any]]:
        """Return one block's predictions, of the stored type."""
        log_probs = self._load(block)
        if log_probs is None:
            again = "run the same command again to compute them"
            if self._place.trusted:
                again = f"delete {self._key(block)} there, and {again}"
            raise RunError(
                f"{self.name}: the predictions for {_named(block)} are missing or damaged: {again}"
            )
        return log_probs

    def _key(self, block: PredictionBlock) -> str:
        views, images, _ = self.plan.chunk
        chunk = (block.views.start // views, block.images.start // images, 0)
        return str(self._array.metadata.encode_chunk_key(chunk))

    def _is_stored(self, block: PredictionBlock) -> bool:
        return self.is_whole(block) if self._place.trusted else self._load(block) is not None

    def is_whole(self, block: PredictionBlock) -> bool:
        """Whether the block exists in full size, without reading it."""
        full_size = math.prod(self.plan.chunk) * self.dtype.itemsize + _CHECKSUM_BYTES
        return self._place.size(self._key(block)) == full_size

    def _load(self, block: PredictionBlock) -> NDArray[np.floating[Any]] | None:
        """Return the block, or None if it is missing or fails its checksum."""
        if not self._place.trusted and self._place.size(self._key(block)) is None:
            return None
        try:
            log_probs = np.asarray(self._array[block.views, block.images], dtype=self.dtype)
        except ValueError:  # a wrong checksum or length
            return None
        except failures(self._place) as error:
            if not self._place.trusted:  # an unreadable sector
                return None
            raise RunError(f"cannot read {self.name}: {reason(error)}") from error
        return None if np.isnan(log_probs).any() else log_probs


@dataclass(frozen=True)
class StoredPasses:
    """The passes stored, of a total; the first `views` views are complete."""

    done: int
    total: int
    views: int


def stored_passes(path: str | Path) -> StoredPasses | None:
    """Return a store's progress, by the sizes of its files; None if there is none to read."""
    try:
        place = place_at(path)
        manifest = place.manifest()
        if manifest is None or place.size("zarr.json") is None:
            return None
        plan = BatchPlan(**manifest["plan"])
        store = PredictionStore.attach(path, plan, manifest["precision"])
        blocks = {block.start: (block, store.is_whole(block)) for block in plan.blocks()}
    except (RelookError, OSError, KeyError, TypeError):
        return None
    done = sum(math.prod(block.shape) for block, whole in blocks.values() if whole)
    missing = [block.views.start for block, whole in blocks.values() if not whole]
    return StoredPasses(done, plan.views * plan.images, min(missing, default=plan.views))


def _claim(place: Place, record: dict[str, JSON]) -> None:
    """Write the manifest of a new store, or compare it with the existing one."""
    try:
        stored = place.manifest()
        if stored is None:
            foreign = place.foreign()
            if foreign is not None:
                raise RunError(
                    f"{place.name}: expected relook's predictions or an empty directory, got "
                    f"{foreign!r} without a {MANIFEST}: use another directory or delete "
                    f"{place.name}"
                )
            place.keep_manifest(record)
            stored = place.manifest()
    except FileFormatError as error:
        raise RunError(f"{error}: use another directory or delete {place.name}") from error
    different = differences(_without_views(stored), _without_views(record))
    if different:
        raise RunError(
            f"{place.name} holds the predictions of something else ({'; '.join(different[:4])}): "
            f"use another directory or delete {place.name}"
        )


def _without_views(manifest: Any) -> Any:
    if not isinstance(manifest, dict):
        return manifest
    return {name: value for name, value in manifest.items() if name != VIEWS}


def _open_array(place: Place, plan: BatchPlan, dtype: str) -> zarr.Array[Any]:
    if place.size("zarr.json") is None:
        return zarr.create_array(
            place.arrays,
            shape=plan.shape,
            chunks=plan.chunk,
            dtype=dtype,
            serializer=BytesCodec(endian="little"),
            compressors=[Crc32cCodec()],
            filters=None,
            fill_value=float("nan"),
            dimension_names=("view", "image", "class"),
        )
    try:
        array = zarr.open_array(place.arrays, mode="r+", zarr_format=3)
        found = (array.shape, array.chunks, str(array.dtype), array.metadata.codecs)  # type: ignore[union-attr]
    except Exception as error:  # zarr raises many kinds for a bad file
        problem = f"{type(error).__name__}: {reason(error)}"
    else:
        codecs = (BytesCodec(endian="little"), Crc32cCodec())
        if found == (plan.shape, plan.chunk, dtype, codecs) and np.isnan(array.fill_value):
            return array
        problem = f"expected a {dtype} array {plan.shape} with checksums"
    raise RunError(
        f"{place.name}/zarr.json is damaged ({problem}): use another directory or delete "
        f"{place.name}"
    )


def _named(block: PredictionBlock) -> str:
    views, images = block.views, block.images
    return f"views {views.start}…{views.stop - 1}, images {images.start}…{images.stop - 1}"


@dataclass(frozen=True)
class Predictions:
    """Log-probabilities `[k, n, c]` to load or, if there is a `map`, to leave on disk."""

    shape: tuple[int, int, int]
    dtype: np.dtype[Any]
    load: Callable[[], LogProbs]
    map: Callable[[], LogProbs] | None = None

    @classmethod
    def of(cls, log_probs: LogProbs) -> Predictions:
        """Wrap log-probabilities that are in memory."""
        return cls(log_probs.shape, log_probs.dtype, lambda: log_probs)
