"""A cache of decoded full-size images on disk, written atomically.

A directory `images-KEY` holds the pixels of all files one after another (`pixels.u8`), their
heights and widths, fingerprints and identities, and which files could not be read. KEY follows
from the files' names, sizes and times and from how they were prepared.
"""

from __future__ import annotations

import mmap
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from relook.data.decode import EncodedImage, Faults, ImageFile
from relook.errors import FileFormatError, RelookError
from relook.io.arrays import read_npy
from relook.io.files import lock_file, one_line, read_json, reason_of, write_json_atomic
from relook.io.fingerprint import JSON, fingerprint
from relook.io.identities import Identities
from relook.transforms.centre_crop import Levels

_FORMAT = "relook decoded images"
_PIXELS, _SHAPES, _FINGERPRINTS, _ABOUT = "pixels.u8", "shapes.npy", "marks.npy", "about.json"
_IDENTITIES = "identities.npy"
_SAMPLE = 8
_KEY_LENGTH = 16

Write = Callable[[Levels], None]


@dataclass(frozen=True)
class Decoded:
    """Decoded files: `shapes` `[file, 2]` (an unreadable one's is 0 × 0), `fingerprints` `[file]`.

    `pixels` holds the readable images one after another, uint8 `[h, w, c]` each.
    """

    pixels: Levels
    shapes: NDArray[np.int64]
    fingerprints: NDArray[np.str_]
    identities: Identities
    faults: Faults
    channels: int


def key_of(files: Sequence[ImageFile], preparation: JSON) -> str:
    """Return the cache's key for these files, prepared in this way."""
    return fingerprint([_file_text(file) for file in files], preparation)[:_KEY_LENGTH]


def _file_text(file: ImageFile) -> str:
    if isinstance(file, EncodedImage):
        return file.identity
    path = file.absolute()
    try:
        found = file.stat()
    except (OSError, ValueError):
        return f"{path}\0nothing"
    return f"{path}\0{found.st_size}\0{found.st_mtime_ns}"


def find_decoded(directory: Path, key: str) -> Decoded | None:
    """Return the images decoded under this key, or None."""
    place = _directory_of(directory, key)
    if not place.is_dir():
        return None
    try:
        return _read(place)
    except (OSError, KeyError, TypeError, ValueError, RelookError) as error:
        raise FileFormatError(
            f"{one_line(str(place))}: expected decoded images: {error}: delete the directory"
        ) from None


def _read(place: Path) -> Decoded:
    about = read_json(place / _ABOUT, what="a record of decoded images")
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        raise ValueError("its record is of another kind")
    shapes, prints = read_npy(place / _SHAPES), read_npy(place / _FINGERPRINTS)
    if shapes.dtype != np.int64 or shapes.shape != (about["files"], 2) or shapes.min() < 0:
        raise ValueError("its record and its shapes do not agree")
    if prints.dtype.kind != "U" or prints.shape != shapes.shape[:1]:
        raise ValueError("its shapes and its fingerprints do not agree")
    identities = read_npy(place / _IDENTITIES)
    if identities.dtype != np.uint64 or identities.shape != prints.shape:
        raise ValueError("its shapes and its identities do not agree")
    channels = int(about["channels"])
    size = int(shapes.prod(axis=1).sum()) * channels
    with (place / _PIXELS).open("rb") as file:
        if os.fstat(file.fileno()).st_size != size or not size:
            raise ValueError(f"its pixels do not have the {size:,} bytes of its shapes")
        pixels = map_file(file)
    faults = {int(i): str(reason) for i, reason in about["faults"].items()}
    found = Decoded(pixels, shapes, prints, identities, faults, channels)
    _check_sample(found)
    return found


def _check_sample(found: Decoded) -> None:
    """Compare a few images with their fingerprints."""
    sizes = found.shapes.prod(axis=1) * found.channels
    ends = np.cumsum(sizes)
    readable = np.flatnonzero(sizes)
    for i in readable[:: -(-len(readable) // _SAMPLE)]:
        levels = found.pixels[ends[i] - sizes[i] : ends[i]]
        if fingerprint(levels.reshape(*found.shapes[i], found.channels)) != found.fingerprints[i]:
            raise ValueError("its pixels are damaged")


def map_file(file: IO[bytes]) -> Levels:
    """Return a file's bytes as a read-only memory map."""
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.ndarray((len(mapped),), np.uint8, mapped)


@contextmanager
def new_decoded(directory: Path, key: str) -> Iterator[tuple[Write, Callable[[Decoded], Decoded]]]:
    """Yield a function that writes pixels and one that keeps them; if not kept, all is removed."""
    temporary = directory / f".relook-{secrets.token_hex(8)}.tmp"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _remove_stale(directory)
        temporary.mkdir()
        with (temporary / _PIXELS).open("xb") as file:
            lock_file(file.fileno(), wait=True)

            def keep(decoded: Decoded) -> Decoded:
                file.flush()
                os.fsync(file.fileno())
                return _keep(decoded, temporary, _directory_of(directory, key))

            yield partial(append_pixels, file), keep
    except OSError as error:
        raise RelookError(
            f"cannot keep decoded images in {one_line(str(directory))}: {reason_of(error)}: give "
            "another cache, or full_size=False (--full-size no)"
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def append_pixels(file: IO[bytes], levels: Levels) -> None:
    """Append an image's levels `[h, w, c]` to a file."""
    file.write(np.ascontiguousarray(levels).reshape(-1).data)


def _keep(decoded: Decoded, temporary: Path, place: Path) -> Decoded:
    np.save(temporary / _SHAPES, decoded.shapes)
    np.save(temporary / _FINGERPRINTS, decoded.fingerprints)
    np.save(temporary / _IDENTITIES, decoded.identities)
    about = {
        "format": _FORMAT,
        "files": len(decoded.shapes),
        "channels": decoded.channels,
        "faults": {str(i): reason for i, reason in decoded.faults.items()},
    }
    write_json_atomic(temporary / _ABOUT, about)
    with suppress(OSError):  # another process was first: its files are the same
        temporary.rename(place)
    return _read(place)


def _remove_stale(directory: Path) -> None:
    """Remove directories that killed processes left behind, whose files are no longer locked."""
    for pixels in directory.glob(f".relook-*.tmp/{_PIXELS}"):
        with suppress(OSError), pixels.open("rb") as file:
            lock_file(file.fileno(), wait=False)
            shutil.rmtree(pixels.parent, ignore_errors=True)


def _directory_of(directory: Path, key: str) -> Path:
    return directory / f"images-{key}"
