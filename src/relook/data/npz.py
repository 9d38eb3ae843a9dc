"""Data sets in NumPy's `.npz` archives, read without pickle and without trust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from relook.data.base import Column, Dataset, numbered_classes
from relook.errors import FileFormatError, RelookError
from relook.foundation.spec_query import split_query
from relook.io.arrays import Header, read_npz
from relook.io.files import one_line

LAYOUTS = ("nchw", "nhwc", "nhw")
_CHANNELS = (1, 3)
_NEEDED = ("images", "labels")
IDENTITIES = "relook_identities"
"""An array that says which images these are, where they were made of others."""
_KNOWN = (*_NEEDED, "classes", "groups", IDENTITIES)


def load_npz(rest: str) -> Dataset:
    """Return the data set in `FILE[?layout=nchw|nhwc|nhw]`.

    The archive holds `images` (uint8) and `labels` (whole numbers), and may hold `classes`
    (their names), `groups`, and further columns with one entry per image.
    """
    file, said = split_query(rest, "npz", {"layout": LAYOUTS})
    path = Path(file).expanduser()
    arrays = read_npz(path, lambda headers: _chosen(headers, path))
    images = arrays["images"]
    how_to_say = f"say npz:{path}?layout=nchw or npz:{path}?layout=nhwc"
    layout = said.get("layout") or layout_of(images.shape, path, how_to_say)
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


def _chosen(headers: Mapping[str, Header], path: Path) -> list[str]:
    """Return the arrays that relook knows, and those with one entry per image."""
    for name in _NEEDED:
        if name not in headers:
            raise FileFormatError(
                f"{path}: expected arrays 'images' and 'labels', but there is no {name!r} among "
                f"{one_line(', '.join(sorted(headers))) or 'no arrays'}"
            )
    rows = headers["labels"].shape[:1]
    return [
        name
        for name, header in headers.items()
        if name in _KNOWN or (header.shape == rows and not header.dtype.hasobject)
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


def layout_of(shape: tuple[int, ...], where: object, how_to_say: str) -> str:
    """Name the layout that the axis of 1 or 3 channels gives away; raise when two do."""
    if len(shape) == 3:
        return "nhw"
    first, last = (len(shape) == 4 and shape[axis] in _CHANNELS for axis in (1, -1))
    if first and last:
        raise RelookError(
            f"{where}: images of shape {list(shape)} can be read two ways: {how_to_say}"
        )
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
