"""Data sets in NumPy's `.npz` archives, read without pickle and without trust."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.lib import format as npy

from relook.data.base import Column, Dataset
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.files import one_line

LAYOUTS = ("nchw", "nhwc", "nhw")
_CHANNELS = (1, 3)
_NEEDED = ("images", "labels")
_KNOWN = (*_NEEDED, "classes", "groups")
_MOST_CLASSES = 1_000_000
_BEST_DEFLATE = 1040  # deflate shrinks nothing by more than 1032


@dataclass(frozen=True)
class _Header:
    """What an array's first bytes declare, and where its content starts."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    start: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def load_npz(rest: str) -> Dataset:
    """Return the data set in `FILE[?layout=nchw|nhwc|nhw]`.

    The archive holds `images` (uint8) and `labels` (whole numbers), and may hold `classes`
    (their names), `groups`, and further columns with one entry an image.
    """
    file, _, option = rest.partition("?")
    layout = _layout(option)
    path = Path(file).expanduser()
    with _readable(path, "an npz archive"), zipfile.ZipFile(path) as archive:
        arrays = _read_archive(archive, path)
    images = _to_nchw(arrays["images"], layout, path)
    labels = arrays["labels"]
    classes = _classes(arrays.get("classes"), labels, path)
    columns = {name: column for name, column in arrays.items() if name not in _KNOWN}
    return Dataset(images, labels, classes, f"npz:{file}", arrays.get("groups"), columns)


def read_npy(path: Path) -> Column:
    """Return the array in an `.npy` file; Python objects and lying sizes are refused."""
    with _readable(path, "an npy file"), path.open("rb") as file:
        header = _read_header(file)
        _check_size(header, path.stat().st_size, str(path))
        file.seek(0)
        return _read_array(file)


@contextmanager
def _readable(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a damaged or hostile file raises into one line."""
    try:
        yield
    except RelookError:
        raise
    except FileNotFoundError:
        raise RelookError(f"no such file: {path}") from None
    except Exception as error:
        why = next(iter(str(error).splitlines()), "")
        raise FileFormatError(
            f"{path}: expected {kind} of plain arrays: {type(error).__name__}: {why}"
        ) from None


def _read_archive(archive: zipfile.ZipFile, path: Path) -> dict[str, Column]:
    """Return the arrays that relook knows, and those with one entry an image."""
    members = {
        info.filename.removesuffix(".npy"): info
        for info in archive.infolist()
        if info.filename.endswith(".npy")
    }
    for name in _NEEDED:
        if name not in members:
            raise FileFormatError(
                f"{path}: expected arrays 'images' and 'labels', but there is no {name!r} among "
                f"{one_line(', '.join(sorted(members))) or 'no arrays'}"
            )
    headers = {name: _member_header(archive, info, path) for name, info in members.items()}
    rows = headers["labels"].shape[:1]
    wanted = [
        name
        for name, header in headers.items()
        if name in _KNOWN or (header.shape == rows and not header.dtype.hasobject)
    ]
    _check_memory(sum(headers[name].nbytes for name in wanted), path)
    arrays = {}
    for name in wanted:
        with archive.open(members[name]) as file:
            arrays[name] = _read_array(file)
    return arrays


def _member_header(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> _Header:
    with archive.open(info) as file:
        header = _read_header(file)
    where = f"{path}: {one_line(info.filename)}"
    _check_size(header, info.file_size, where)
    most = info.compress_size * (_BEST_DEFLATE if info.compress_type else 1)
    if info.file_size > most + _BEST_DEFLATE or info.compress_size > path.stat().st_size:
        raise FileFormatError(f"{where}: declares more content than the archive can hold")
    return header


def _read_header(file: IO[bytes]) -> _Header:
    # Plain arrays are always format 1.0; later ones are for structured types, which we refuse,
    # and allow headers of gigabytes.
    if npy.read_magic(file) != (1, 0):
        raise ValueError("a structured array")
    shape, _, dtype = npy.read_array_header_1_0(file)
    if any(side < 0 for side in shape) or dtype.itemsize == 0:
        raise ValueError(f"an impossible array: {dtype} {list(shape)}")
    return _Header(shape, dtype, file.tell())


def _check_size(header: _Header, size: int, where: str) -> None:
    """Raise unless the declared array is exactly what the file says it holds."""
    if not header.dtype.hasobject and header.start + header.nbytes != size:
        raise FileFormatError(
            f"{where}: its header declares {header.dtype} {list(header.shape)} "
            f"({header.nbytes} bytes), but {size - header.start} bytes follow: damaged or cut off"
        )


def _check_memory(nbytes: int, path: Path) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if nbytes > memory // 2:
        raise RelookError(
            f"{path}: expected arrays of at most half this machine's memory "
            f"({memory / 2e9:.1f} GB), got {nbytes / 1e9:.1f} GB: split the file"
        )


def _read_array(file: IO[bytes]) -> Column:
    array = npy.read_array(file, allow_pickle=False)
    file.read(1)  # reaching the end is what makes zipfile compare the checksum
    return np.asarray(array)


def _layout(option: str) -> str | None:
    if not option:
        return None
    key, _, layout = option.partition("=")
    if key != "layout":
        raise unknown_name("npz option", key, ["layout"])
    if layout not in LAYOUTS:
        raise unknown_name("layout", layout, LAYOUTS)
    return layout


def _to_nchw(images: Column, layout: str | None, path: Path) -> torch.Tensor:
    if images.dtype != np.uint8:
        raise RelookError(
            f"{path}: expected uint8 images (grey levels 0…255), got {images.dtype}: "
            "convert them before saving"
        )
    layout = layout or _guess_layout(images.shape, path)
    if images.ndim != len(layout):
        raise RelookError(
            f"{path}: expected images with {len(layout)} axes ({layout}), "
            f"got shape {list(images.shape)}"
        )
    if layout == "nhw":
        images = images[:, None]
    elif layout == "nhwc":
        images = images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(images))


def _guess_layout(shape: tuple[int, ...], path: Path) -> str:
    """Name the layout that the axis of 1 or 3 channels gives away; raise when two do."""
    if len(shape) == 3:
        return "nhw"
    first, last = (len(shape) == 4 and shape[axis] in _CHANNELS for axis in (1, -1))
    if first and last:
        raise RelookError(
            f"{path}: images of shape {list(shape)} can be read two ways: "
            f"say npz:{path}?layout=nchw or npz:{path}?layout=nhwc"
        )
    if not first and not last:
        raise RelookError(
            f"{path}: expected images [n, h, w], or [n, h, w, c] or [n, c, h, w] with 1 or 3 "
            f"channels, got shape {list(shape)}"
        )
    return "nchw" if first else "nhwc"


def _classes(names: Column | None, labels: Column, path: Path) -> tuple[str, ...]:
    if names is not None:
        if names.ndim != 1 or names.dtype.kind != "U":
            raise RelookError(
                f"{path}: expected classes as text [class], got {names.dtype} {list(names.shape)}"
            )
        return tuple(str(name) for name in names)
    whole = labels.size > 0 and labels.dtype.kind in "iu"  # the data set's own check says more
    highest = int(labels.max()) if whole else 1
    if highest >= _MOST_CLASSES:
        raise RelookError(
            f"{path}: expected labels below {_MOST_CLASSES} where no classes are named, "
            f"got {highest}"
        )
    return tuple(map(str, range(max(1, highest) + 1)))
