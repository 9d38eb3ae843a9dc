"""Sources of images in arrays: NumPy archives, MNIST's files, digits."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BufferedReader
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from relook.data.base import NO_CLASSES, Column, Dataset, numbered_classes
from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.registry import split_query
from relook.io.arrays import Header, check_memory, read_npz
from relook.io.files import one_line
from relook.numerics.randomness import uniforms

LAYOUTS = ("nchw", "nhwc", "nhw")
CHANNELS = (1, 3)
_REQUIRED = ("images", "labels")
IDENTITIES = "relook_identities"
"""The array of identities, for images that were made from others."""
_KNOWN = (*_REQUIRED, "classes", "groups", IDENTITIES)

_PREFIXES = {"test": ("t10k", "test"), "train": ("train",)}
_UINT8 = 0x08

SIDE = 32
TRAIN_SHARE = 0.1
_SPLIT_SEED = 8
_DIGITS_PARTS = ("", "train", "test")


def load_npz(rest: str, *, labelled: bool = True) -> Dataset:
    """Return the data set in `FILE[?layout=nchw|nhwc|nhw]`.

    The archive holds `images` (uint8) and `labels` (whole numbers), and may hold `classes`
    (their names), `groups`, and further columns with one entry per image. Unless `labelled`, only
    the images are needed, and labels are not read.
    """
    file, options = split_query(rest, "npz", {"layout": LAYOUTS})
    path = Path(file).expanduser()
    required = _REQUIRED if labelled else _REQUIRED[:1]
    arrays = read_npz(path, lambda headers: _select_arrays(headers, path, required))
    images = arrays["images"]
    hint = f"say npz:{path}?layout=nchw or npz:{path}?layout=nhwc"
    layout = options.get("layout") or layout_of(images.shape, path, hint)
    labels: Column = np.zeros(len(images), np.int64)
    classes: tuple[str, ...] = NO_CLASSES
    if labelled:
        labels = arrays["labels"]
        classes = _classes(arrays.get("classes"), labels, path)
    columns = {name: column for name, column in arrays.items() if name not in _KNOWN}
    return Dataset(
        to_nchw(images, layout, path),
        labels,
        classes,
        f"npz:{file}",
        arrays.get("groups"),
        columns,
        identities=arrays.get(IDENTITIES, np.empty(0, np.uint64)),
    )


def _select_arrays(headers: Mapping[str, Header], path: Path, required: Sequence[str]) -> list[str]:
    """Return the names of known arrays and of those with one entry per image."""
    for name in required:
        if name not in headers:
            expected = " and ".join(map(repr, required))
            raise FileFormatError(
                f"{path}: expected {'arrays' if required[1:] else 'an array'} {expected}, but "
                f"there is no {name!r} among {one_line(', '.join(sorted(headers))) or 'no arrays'}"
            )
    rows = headers[required[-1]].shape[:1]
    ignored = () if "labels" in required else ("labels", "classes")
    return [
        name
        for name, header in headers.items()
        if name not in ignored
        and (name in _KNOWN or (header.shape == rows and not header.dtype.hasobject))
    ]


def to_nchw(images: Column, layout: str, where: object) -> torch.Tensor:
    """Return images in a layout as a tensor `[n, c, h, w]`."""
    if images.dtype != np.uint8:
        raise RelookError(
            f"{where}: expected uint8 images (grey levels 0…255), got {images.dtype}: "
            "convert them first"
        )
    if images.ndim != len(layout):
        raise RelookError(
            f"{where}: expected images with {len(layout)} axes ({layout}), "
            f"got shape {list(images.shape)}"
        )
    if layout == "nhw":
        images = images[:, None]
    elif layout == "nhwc":
        images = images.transpose(0, 3, 1, 2)
    return torch.from_numpy(np.ascontiguousarray(images))


def layout_of(shape: tuple[int, ...], where: object, hint: str) -> str:
    """Return the layout by which axis has 1 or 3 channels; raise, with a hint, if both do."""
    if len(shape) == 3:
        return "nhw"
    first, last = (len(shape) == 4 and shape[axis] in CHANNELS for axis in (1, -1))
    if first and last:
        raise RelookError(f"{where}: images of shape {list(shape)} can be read two ways: {hint}")
    if not first and not last:
        raise RelookError(
            f"{where}: expected images [n, h, w], or [n, h, w, c] or [n, c, h, w] with 1 or 3 "
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
    return numbered_classes(labels, str(path))


def load_idx(rest: str) -> Dataset:
    """Return the grey images of `DIR[?part=test|train]`, the test part by default.

    The files are named like MNIST's, `t10k-images-idx3-ubyte` and so on, gzipped or not. They have
    no class names, so classes are numbered.
    """
    folder, options = split_query(rest, "idx", {"part": tuple(_PREFIXES)})
    part = options.get("part", "test")
    root = Path(folder).expanduser()
    images = _read_idx(_find_idx(root, part, "images-idx3-ubyte"), axes=3)
    labels = _read_idx(_find_idx(root, part, "labels-idx1-ubyte"), axes=1)
    where = f"idx:{one_line(rest)}"
    return Dataset(
        torch.from_numpy(images[:, None]),
        labels.astype(np.int64),
        numbered_classes(labels, where),
        where,
    )


def _find_idx(root: Path, part: str, name: str) -> Path:
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


def _read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    """Return the array in an idx file, whose size must be the declared one."""
    try:
        with path.open("rb") as raw:
            packed = path.suffix == ".gz"
            return _parse_idx(gzip.GzipFile(fileobj=raw) if packed else raw, path, axes)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path}: expected an idx file: {error}") from None


def _parse_idx(file: gzip.GzipFile | BufferedReader, path: Path, axes: int) -> NDArray[np.uint8]:
    head = file.read(4 + 4 * axes)
    if len(head) < 4 + 4 * axes or head[:4] != bytes([0, 0, _UINT8, axes]):
        raise FileFormatError(
            f"{path}: expected an idx file of bytes with {axes} axes, got one that starts with "
            f"{head[:4].hex() or 'nothing'}"
        )
    shape = struct.unpack(f">{axes}I", head[4:])
    count = math.prod(shape)
    check_memory(count, path)
    content = file.read(count + 1)
    if len(content) != count:
        more = "more" if len(content) > count else f"{len(content):,}"
        raise FileFormatError(
            f"{path}: its head declares {list(shape)} ({count:,} bytes), but {more} follow: "
            "damaged or cut off"
        )
    return np.frombuffer(bytearray(content), dtype=np.uint8).reshape(shape)


def load_digits(part: str = "") -> Dataset:
    """Return the 1797 digits, 32×32 grey, or their `train` (10 %) or `test` (90 %) part.

    The parts are drawn class by class, the same on every machine. Most digits are in `test`, as a
    search and its evaluation need more images than training the small network.
    """
    if part not in _DIGITS_PARTS:
        raise unknown_name("part of digits", part, _DIGITS_PARTS[1:])
    from sklearn.datasets import load_digits as load_bunch  # takes a second to import

    bunch = load_bunch()
    labels = bunch.target.astype(np.int64)
    images = torch.from_numpy(np.stack([_enlarged(image) for image in bunch.images]))
    digits = Dataset(images[:, None], labels, tuple("0123456789"), "digits")
    if not part:
        return digits
    train = _in_train(labels)
    places = np.flatnonzero(train if part == "train" else ~train)
    return replace(digits.subset(places), name=f"digits:{part}")


def _enlarged(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Turn 8×8 levels 0…16 into 32×32 levels 0…255, smoothly."""
    levels = np.rint(image * (255 / 16)).astype(np.uint8)
    return np.array(Image.fromarray(levels).resize((SIDE, SIDE), Image.Resampling.BICUBIC))


def _in_train(labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    lots = uniforms(_SPLIT_SEED, image=np.arange(len(labels)))
    train = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = members[np.argsort(lots[members], kind="stable")]
        train[order[: round(TRAIN_SHARE * len(members))]] = True
    return train
