"""Predictions on disk: a checksummed Zarr array beside a manifest, made to be resumed."""

from __future__ import annotations

import fcntl
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.storage import LocalStore

from relook.errors import RelookError, RunError, unknown_name
from relook.files import read_json, write_json_atomic
from relook.fingerprint import JSON, differences

_FORMAT: Mapping[str, JSON] = {"format": "relook predictions", "format_version": 1}
_MANIFEST = "manifest.json"
_ABANDONED_AFTER = 3600.0  # seconds; no write of one chunk takes that long

Precision = Literal["auto", "float16", "float32"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
HALF_FROM = 201
"""From how many classes on "auto" stores float16."""


def stored_type(precision: str, classes: int) -> str:
    """Return the type that predictions are stored in: float32, or float16 for many classes.

    float16 keeps 11 bits of a log-probability: 0.0005 at −1, 0.03 at −80, the lowest there is.
    """
    if precision not in PRECISIONS:
        raise unknown_name("precision of stored predictions", precision, PRECISIONS)
    if precision != "auto":
        return precision
    return "float16" if classes >= HALF_FROM else "float32"


@dataclass(frozen=True)
class Block:
    """A part of the predictions that is computed and stored as one: views × images."""

    views: slice
    images: slice

    @property
    def shape(self) -> tuple[int, int]:
        """How many views and images the block has."""
        return self.views.stop - self.views.start, self.images.stop - self.images.start


@dataclass(frozen=True)
class Plan:
    """How the passes are cut up: `batch` images a model call, `group` views a block.

    A model's outputs depend on its batches in the last digits, so the plan belongs to them.
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

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks: batch after batch, and the whole pool within a batch."""
        for image in range(0, self.images, self.batch):
            for view in range(0, self.views, self.group):
                yield Block(
                    slice(view, min(view + self.group, self.views)),
                    slice(image, min(image + self.batch, self.images)),
                )


class PredictionStore:
    """Log-probabilities `[view, image, class]`: one checksummed chunk for each block.

    They are float32 or float16, as the manifest says.

    After a crash, a kill or a power cut: a block is either done, with the bytes that were
    written, or not done. Half-written and damaged chunks fail their checksum and count as
    not done, so they are computed again; what a killed write leaves behind is removed by a
    later `open`.

    Concurrent use: any number of processes may open the same store, read it and write to it;
    the first one decides what it is for. A chunk appears whole or not at all, and two writers
    of one block write the same bytes, so they lose time but nothing else. `open` relies on
    file locks: on a network file system without them, keep to one process.
    """

    def __init__(self, path: Path, plan: Plan, array: zarr.Array[Any]) -> None:
        self.path = path
        self.plan = plan
        self._array = array
        self._done: set[tuple[int, int]] = set()

    @classmethod
    def open(
        cls,
        path: str | Path,
        manifest: Mapping[str, JSON],
        plan: Plan,
        precision: str = "float32",
    ) -> PredictionStore:
        """Create the store, or open the one on disk if it belongs to this manifest and plan.

        The manifest says what the predictions are of (pool, model, data, seed, version …).
        """
        path = Path(path)
        dtype = stored_type(precision, plan.classes)
        record = {**_FORMAT, **manifest, "precision": dtype, "plan": asdict(plan)}
        record = json.loads(json.dumps(record))
        try:
            path.mkdir(parents=True, exist_ok=True)
            with _exclusive(path / ".lock"):
                _claim(path, record)
                array = _open_array(path, plan, dtype)
            _remove_abandoned(path)
        except OSError as error:
            raise RunError(f"cannot keep predictions in {path}: {_reason(error)}") from error
        return cls(path, plan, array)

    def is_done(self, block: Block) -> bool:
        """Whether the block is stored, with the right checksum (verified once)."""
        key = (block.views.start, block.images.start)
        if key not in self._done and self._load(block) is not None:
            self._done.add(key)
        return key in self._done

    @property
    def dtype(self) -> np.dtype[np.floating[Any]]:
        """What the predictions are stored as."""
        return np.dtype(str(self._array.dtype))

    @property
    def progress(self) -> tuple[int, int]:
        """How many blocks are done, of how many."""
        done = [self.is_done(block) for block in self.plan.blocks()]
        return sum(done), len(done)

    def write(self, block: Block, log_probs: NDArray[np.float32]) -> None:
        """Store the block's log-probabilities `[view, image, class]`; none may be NaN."""
        log_probs = np.asarray(log_probs, dtype=np.float32)
        if np.isnan(log_probs).any():
            raise RelookError("expected log-probabilities to store, got NaN among them")
        expected = (*block.shape, self.plan.classes)
        if log_probs.shape != expected:
            raise RelookError(f"expected a block of shape {expected}, got {log_probs.shape}")
        try:
            self._array[block.views, block.images] = log_probs.astype(self.dtype)
        except OSError as error:
            raise RunError(f"cannot write to {self.path}: {_reason(error)}") from error
        self._done.add((block.views.start, block.images.start))

    def read(self, views: Sequence[int] | None = None) -> NDArray[np.float32]:
        """Return the predictions of these views (default: all), in this order, repeats allowed."""
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
        """Return all predictions, as they are stored."""
        result = np.empty(self.plan.shape, dtype=self.dtype)
        for block in self.plan.blocks():
            result[block.views, block.images] = self.read_block(block)
        return result

    def read_block(self, block: Block) -> NDArray[np.floating[Any]]:
        """Return one block's predictions, as they are stored."""
        log_probs = self._load(block)
        if log_probs is None:
            raise RunError(
                f"{self.path}: the predictions for {_named(block)} are missing or damaged: "
                "run the same command again to compute them"
            )
        return log_probs

    def _load(self, block: Block) -> NDArray[np.floating[Any]] | None:
        """Return the block, or None where it is missing or fails its checksum."""
        views, images, _ = self.plan.chunk
        chunk = (block.views.start // views, block.images.start // images, 0)
        if not (self.path / self._array.metadata.encode_chunk_key(chunk)).is_file():
            return None
        try:
            log_probs = np.asarray(self._array[block.views, block.images], dtype=self.dtype)
        except (ValueError, OSError):  # a wrong checksum or length, an unreadable sector
            return None
        return None if np.isnan(log_probs).any() else log_probs


def _claim(path: Path, record: dict[str, JSON]) -> None:
    """Write the manifest of a new store, or compare with the one that is there."""
    manifest = path / _MANIFEST
    if not manifest.exists():
        foreign = [p.name for p in path.iterdir() if not p.name.startswith(".")]
        if foreign:
            raise RunError(
                f"{path}: expected relook's predictions or an empty directory, got {foreign[0]!r} "
                f"without a {_MANIFEST}: use another --out or delete {path}"
            )
        write_json_atomic(manifest, record)
        return
    try:
        stored = read_json(manifest, what="manifest")
    except RelookError as error:
        raise RunError(f"{error}: use another --out or delete {path}") from error
    different = differences(stored, record)
    if different:
        raise RunError(
            f"{path} holds the predictions of something else ({'; '.join(different[:4])}): "
            f"use another --out or delete {path}"
        )


def _open_array(path: Path, plan: Plan, dtype: str) -> zarr.Array[Any]:
    store = LocalStore(path)
    if not (path / "zarr.json").exists():
        return zarr.create_array(
            store,
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
        array = zarr.open_array(store, mode="r+", zarr_format=3)
        found = (array.shape, array.chunks, str(array.dtype), array.metadata.codecs)  # type: ignore[union-attr]
    except Exception as error:  # zarr raises whatever a bad file makes it trip over
        problem = f"{type(error).__name__}: {_reason(error)}"
    else:
        codecs = (BytesCodec(endian="little"), Crc32cCodec())
        if found == (plan.shape, plan.chunk, dtype, codecs) and np.isnan(array.fill_value):
            return array
        problem = f"expected a {dtype} array {plan.shape} with checksums"
    raise RunError(
        f"{path / 'zarr.json'} is damaged ({problem}): use another --out or delete {path}"
    )


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock on the file while others wait; the kernel frees it if we die."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_abandoned(path: Path) -> None:
    # A young one may belong to a process that is writing it, and may be gone a moment later.
    limit = time.time() - _ABANDONED_AFTER
    for leftover in path.rglob("*.partial"):
        with suppress(FileNotFoundError):
            if leftover.stat().st_mtime < limit:
                leftover.unlink()


def _named(block: Block) -> str:
    views, images = block.views, block.images
    return f"views {views.start}…{views.stop - 1}, images {images.start}…{images.stop - 1}"


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200]
