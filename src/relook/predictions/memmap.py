"""A store's predictions as one plain array file, for pools that do not fit into memory.

The store's chunks suit neither of the selection's orders, by candidate and by image. So they are
copied once into an `.npy` file `[view, image, class]` inside the store, which is memory-mapped. It
is written under a temporary name and renamed when complete; a checksum of each view, kept next to
it, is compared before the file is used again.
"""

from __future__ import annotations

import os
import secrets
import shutil
import zlib
from io import BytesIO
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from relook.errors import RelookError, RunError
from relook.foundation.memory import size_text
from relook.foundation.progress import Progress
from relook.io.files import read_json, write_json_atomic
from relook.io.fingerprint import JSON
from relook.predictions.store import BatchPlan, PredictionStore

MAPPED = "mapped.npy"
CHECKSUMS = "mapped.json"
_FORMAT = "relook mapped predictions"
_SLAB = 1 << 24  # bytes read at a time for the checksums


def mapped_predictions(
    store: PredictionStore, progress: Progress | None = None
) -> NDArray[np.floating[Any]]:
    """Return all predictions of a finished store as a read-only memory map.

    The first call writes the file, which takes as much disk again as the store; later calls
    use it if its checksums match. `progress` is called with views done and all views.
    """
    file = store.path / MAPPED
    if not _is_whole(store, progress):
        for leftover in store.path.glob(f".{MAPPED}-*.tmp"):
            leftover.unlink(missing_ok=True)
        _check_free_disk(store)
        try:
            _write(store, progress)
        except OSError as error:
            raise RunError(f"cannot write {file}: {error.strerror or error}") from error
    return np.load(file, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]


def mapped_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes of disk that the mapped file of such predictions takes."""
    return int(np.prod(shape, dtype=np.int64)) * dtype.itemsize


def _write(store: PredictionStore, progress: Progress | None) -> None:
    temporary = store.path / f".{MAPPED}-{secrets.token_hex(8)}.tmp"
    (store.path / CHECKSUMS).unlink(missing_ok=True)
    try:
        with temporary.open("xb") as file:
            checksums = _copy(store, file, progress)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(store.path / MAPPED)
    finally:
        temporary.unlink(missing_ok=True)
    write_json_atomic(store.path / CHECKSUMS, {"format": _FORMAT, "crc32": checksums})


def _copy(store: PredictionStore, file: IO[bytes], progress: Progress | None) -> list[JSON]:
    """Write header and predictions; return each view's checksum."""
    plan, dtype = store.plan, store.dtype.newbyteorder("<")
    file.write(_header(plan, dtype))
    start, row = file.tell(), plan.classes * dtype.itemsize
    checksums = [0] * plan.views
    blocks = sorted(plan.blocks(), key=lambda block: block.views.start)  # stable: images ascend
    with store.read_blocks(blocks) as read:
        for block, values in zip(blocks, read, strict=True):
            converted = np.ascontiguousarray(values.astype(dtype, copy=False))
            for view, rows in enumerate(converted, start=block.views.start):
                file.seek(start + (view * plan.images + block.images.start) * row)
                file.write(rows.data)
                checksums[view] = zlib.crc32(rows.data, checksums[view])
            if progress is not None and block.images.stop == plan.images:
                progress(block.views.stop, plan.views)
    return list(checksums)


def _header(plan: BatchPlan, dtype: np.dtype[Any]) -> bytes:
    head = BytesIO()
    descr = npy.dtype_to_descr(dtype)
    npy.write_array_header_1_0(head, {"descr": descr, "fortran_order": False, "shape": plan.shape})
    return head.getvalue()


def _is_whole(store: PredictionStore, progress: Progress | None) -> bool:
    """Whether the file exists with the right size, and every view matches its checksum."""
    try:
        record = read_json(store.path / CHECKSUMS, what="checksums")
        expected = record["crc32"]  # type: ignore[index]
        with (store.path / MAPPED).open("rb") as file:
            head = _header(store.plan, store.dtype.newbyteorder("<"))
            size = len(head) + mapped_bytes(store.plan.shape, store.dtype)
            if file.read(len(head)) != head or os.fstat(file.fileno()).st_size != size:
                return False
            return _checksums_match(file, store, expected, progress)
    except (RelookError, OSError, TypeError, KeyError):
        return False


def _checksums_match(
    file: IO[bytes], store: PredictionStore, expected: Any, progress: Progress | None
) -> bool:
    views = store.plan.views
    if not isinstance(expected, list) or len(expected) != views:
        return False
    view_bytes = mapped_bytes(store.plan.shape[1:], store.dtype)
    for view in range(views):
        checksum, left = 0, view_bytes
        while left:
            slab = file.read(min(left, _SLAB))
            if not slab:
                return False
            checksum, left = zlib.crc32(slab, checksum), left - len(slab)
        if checksum != expected[view]:
            return False
        if progress is not None:
            progress(view + 1, views)
    return True


def _check_free_disk(store: PredictionStore) -> None:
    needed = mapped_bytes(store.plan.shape, store.dtype)
    free = shutil.disk_usage(store.path).free
    if needed > free:
        raise RunError(
            f"{store.path}: expected {size_text(needed)} of free disk for the predictions as one "
            f"file, got {size_text(free)}: free some, or raise memory above their size; "
            "all predictions are kept"
        )
