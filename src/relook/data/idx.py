"""MNIST, Fashion-MNIST and their kin: the idx files that they are published as."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from io import BufferedReader
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from relook.data.base import Dataset, numbered_classes
from relook.errors import FileFormatError, RelookError
from relook.foundation.memory import half_of_memory
from relook.foundation.spec_query import split_query
from relook.io.files import one_line

_PREFIXES = {"test": ("t10k", "test"), "train": ("train",)}
_UINT8 = 0x08


def load_idx(rest: str) -> Dataset:
    """Return the grey images of `DIR[?part=test|train]`, the test part by default.

    The files are named as MNIST's, `t10k-images-idx3-ubyte` and so on, gzipped or not. They
    hold no names of classes, so these are numbers.
    """
    folder, said = split_query(rest, "idx", {"part": tuple(_PREFIXES)})
    part = said.get("part", "test")
    root = Path(folder).expanduser()
    images = _read(_file(root, part, "images-idx3-ubyte"), axes=3)
    labels = _read(_file(root, part, "labels-idx1-ubyte"), axes=1)
    where = f"idx:{one_line(rest)}"
    return Dataset(
        torch.from_numpy(images[:, None]),
        labels.astype(np.int64),
        numbered_classes(labels, where),
        where,
    )


def _file(root: Path, part: str, name: str) -> Path:
    dotted = name.replace("-idx", ".idx")
    wanted = [f"{p}-{n}" for p in _PREFIXES[part] for n in (name, dotted)]
    for candidate in wanted:
        for end in ("", ".gz"):
            if (root / f"{candidate}{end}").is_file():
                return root / f"{candidate}{end}"
    raise RelookError(
        f"{one_line(str(root))}: expected the {part} part as {wanted[0]} or {wanted[0]}.gz, "
        "got no such file"
    )


def _read(path: Path, axes: int) -> NDArray[np.uint8]:
    """Return the array in an idx file; what it declares must be what it holds."""
    try:
        with path.open("rb") as raw:
            packed = path.suffix == ".gz"
            return _array(gzip.GzipFile(fileobj=raw) if packed else raw, path, axes)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: expected an idx file: {error}") from None


def _array(file: gzip.GzipFile | BufferedReader, path: Path, axes: int) -> NDArray[np.uint8]:
    head = file.read(4 + 4 * axes)
    if len(head) < 4 + 4 * axes or head[:4] != bytes([0, 0, _UINT8, axes]):
        raise FileFormatError(
            f"{path}: expected an idx file of bytes with {axes} axes, got one that starts with "
            f"{head[:4].hex() or 'nothing'}"
        )
    shape = struct.unpack(f">{axes}I", head[4:])
    count = math.prod(shape)
    half = half_of_memory()
    if count > half:
        raise FileFormatError(
            f"{path}: expected at most half of this machine's memory ({half / 1e9:.1f} GB), got "
            f"{list(shape)}: {count / 1e9:.1f} GB"
        )
    content = file.read(count + 1)
    if len(content) != count:
        more = "more" if len(content) > count else f"{len(content):,}"
        raise FileFormatError(
            f"{path}: its head declares {list(shape)} ({count:,} bytes), but {more} follow: "
            "damaged or cut off"
        )
    return np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)
