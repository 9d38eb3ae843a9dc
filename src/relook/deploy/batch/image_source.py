"""Images without labels, to predict or to learn from: files, decoded when needed, or arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from relook.data import Dataset, as_dataset, load_data
from relook.data.base import NO_CLASSES
from relook.data.decode import (
    Unreadable,
    decode_image,
    image_files,
    map_in_threads,
    nothing_left,
    quiet_pillow,
    read_heads,
    report_faults,
)
from relook.data.folder import leads_elsewhere
from relook.data.image_files import full_levels
from relook.data.prepare import Preparation, make_plan, to_array
from relook.errors import RelookError
from relook.io.files import one_line
from relook.io.fingerprint import fingerprint
from relook.io.identities import Identities, file_identity
from relook.transforms.centre_crop import LARGEST, CentreCrop, Levels, Size
from relook.transforms.full_images import FullImages

BLOCK = 256
"""The most images that are read, predicted and stored together."""

_HEADS_AT_ONCE = 4096
_BLOCK_PIXELS = 1 << 23  # 256 images of 181×181, 167 of 224×224
_NO_PROGRESS = Preparation()
_CUT = ", crops cut from the originals"


@dataclass(frozen=True)
class ImageBlock:
    """Consecutive images of a source: those that can be read, their places, and the faults."""

    images: Tensor | FullImages
    places: tuple[int, ...]
    faults: dict[int, str]


@dataclass(frozen=True)
class ImageSource:
    """Images to predict: a name each, and `read(ranges)`, which yields them in blocks.

    `fingerprint` is of names and content; `identify(places)` returns the images' identities.
    """

    names: Sequence[str]
    fingerprint: str
    prepared: str
    block: int
    read: Callable[[Sequence[range]], Generator[ImageBlock, None, None]]
    identify: Callable[[Sequence[int]], Identities]

    def ranges(self) -> list[range]:
        """Cut the images into blocks."""
        return [
            range(start, min(start + self.block, len(self.names)))
            for start in range(0, len(self.names), self.block)
        ]


def open_source(spec: str, wanted: Preparation) -> ImageSource:
    """Return the images that a spec names: folder:DIR, files:LIST, a file, or a data set.

    Folders are read at any depth, without labels. With `full_size`, files stay larger than the
    network's input, so that views can be cut from them.
    """
    prefix, _, rest = spec.partition(":")
    named = prefix in ("folder", "files") and rest
    path = Path(rest if named else spec).expanduser()
    if named and prefix == "files":
        return _from_files(Path(), _listed(path), spec, wanted)
    if named or path.is_dir():
        found = image_files([path / name for name in _walk(path)], wanted, one_line(spec))
        return _from_files(
            path, [file.relative_to(path).as_posix() for file in found], spec, wanted
        )
    if path.is_file():
        return _from_files(Path(), [spec], spec, wanted)
    return _from_dataset(load_data(spec, wanted, labelled=False))


def file_source(spec: str) -> str:
    """Return a spec as a data source of `relook search`: folder:… for files and folders."""
    prefix, _, rest = spec.partition(":")
    is_files = prefix == "files" and rest
    return f"folder:{spec}" if is_files or Path(spec).expanduser().exists() else spec


def read_unlabelled(images: Any, wanted: Preparation, name: str = "images") -> Dataset:
    """Return images of any kind, or those of a spec, as a data set with meaningless labels."""
    if isinstance(images, str | Path):
        return _unlabelled_files(str(images), wanted)
    if isinstance(images, Dataset):
        return images
    bare = isinstance(images, Tensor | np.ndarray | FullImages | list)
    labels = np.zeros(len(images), np.int64) if bare else None
    return as_dataset(images, labels, preparation=wanted, name=name)


def _from_dataset(dataset: Dataset) -> ImageSource:
    names = [str(name) for name in dataset.columns.get("path", range(len(dataset)))]

    def read(ranges: Sequence[range]) -> Generator[ImageBlock, None, None]:
        for part in ranges:
            images = dataset.images[part.start : part.stop]
            yield ImageBlock(images, tuple(part), {})

    shape = "×".join(map(str, dataset.images.shape[1:]))
    shape += _CUT if isinstance(dataset.images, FullImages) else ""
    known = dataset.identities
    return ImageSource(
        names, dataset.fingerprint, shape, BLOCK, read, lambda places: known[list(places)]
    )


def _from_files(root: Path, names: Sequence[str], where: str, wanted: Preparation) -> ImageSource:
    if not names:
        raise RelookError(f"{one_line(where)}: expected image files, got none")
    plan, sizes, faults = _read_heads(root, names, where, wanted)
    full = wanted.full_size and any(map(plan.changes, sizes))
    side = max(1, plan.size[0] * plan.size[1]) * (LARGEST**2 if full else 1)
    block = min(BLOCK, max(8, int(_BLOCK_PIXELS // side)))
    read = partial(_blocks, root, names, plan, faults, full)
    shown = [one_line(name) for name in names]
    prepared = f"{plan.described(sizes)}{_CUT if full else ''}"
    identify = partial(_identities, root, names)
    return ImageSource(shown, _fingerprint(root, names), prepared, block, read, identify)


def _read_heads(
    root: Path, names: Sequence[str], where: str, wanted: Preparation
) -> tuple[CentreCrop, set[Size], dict[int, str]]:
    """Read the heads of all files, a few thousand at a time, and plan their preparation."""
    sizes: set[Size] = set()
    faults: dict[int, str] = {}
    grey = True
    for start in range(0, len(names), _HEADS_AT_ONCE):
        part = [root / name for name in names[start : start + _HEADS_AT_ONCE]]
        heads, bad = read_heads(part, replace(wanted, progress=None))
        sizes |= {head.size for head in heads.values()}
        grey = grey and all(head.grey for head in heads.values())
        faults |= {start + i: why for i, why in bad.items()}
        if bad and not wanted.skip_bad:
            report_faults(bad, part, wanted, where)
        if wanted.progress is not None:
            wanted.progress("looking at files", start + len(part), len(names))
    if len(faults) == len(names):
        raise nothing_left(where, len(names))
    return make_plan(sizes, grey, wanted, where), sizes, faults


def _blocks(
    root: Path,
    names: Sequence[str],
    plan: CentreCrop,
    known: dict[int, str],
    full: bool,
    ranges: Sequence[range],
) -> Generator[ImageBlock, None, None]:
    """Decode files in a few threads, ahead of their use."""
    wanted = [place for part in ranges for place in part if place not in known]
    with quiet_pillow():
        decode = partial(_decode, full_levels if full else to_array, plan)
        results = map_in_threads(
            lambda i: decode(root / names[i]), wanted, _NO_PROGRESS, "decoding"
        )
        for part in ranges:
            levels, faults = {}, {}
            for place in part:
                found = Unreadable(known[place]) if place in known else next(results)
                if isinstance(found, Unreadable):
                    faults[place] = found.reason
                else:
                    levels[place] = found
            pixels = list(levels.values())
            images = FullImages.of(pixels, plan) if full else _stacked(pixels, plan)
            yield ImageBlock(images, tuple(levels), faults)


def _decode(
    read: Callable[[Image.Image, CentreCrop], Levels], plan: CentreCrop, path: Path
) -> Levels | Unreadable:
    return decode_image(path, lambda image: read(image, plan))


def _stacked(pixels: Sequence[Levels], plan: CentreCrop) -> Tensor:
    images = torch.empty((len(pixels), plan.channels, *plan.size), dtype=torch.uint8)
    for row, levels in enumerate(pixels):
        images[row] = torch.from_numpy(levels.copy())
    return images


def _fingerprint(root: Path, names: Sequence[str]) -> str:
    """Return a fingerprint of names, sizes and modification times."""
    stats = []
    for name in names:
        try:
            found = (root / name).stat()
            stats.append((found.st_size, found.st_mtime_ns))
        except OSError:
            stats.append((-1, -1))
    return fingerprint(list(map(os.fsencode, names)), np.array(stats, dtype=np.int64))


def _identities(root: Path, names: Sequence[str], places: Sequence[int]) -> Identities:
    """Return identities from the bytes of files."""
    found = []
    for place in places:
        with (root / names[place]).open("rb") as file:
            found.append(file_identity(file))
    return np.array(found, dtype=np.uint64)


def _walk(root: Path) -> list[str]:
    """Return the files of a folder at any depth, by name, without hidden ones.

    As in a folder of classes, links to folders elsewhere are followed only at the top.
    """
    if not root.is_dir():
        raise RelookError(f"{one_line(str(root))}: expected a folder of images, got no folder")
    found = []
    for directory, folders, files in os.walk(root, followlinks=True):
        here = os.path.relpath(directory, root)
        links = {name for name in folders if Path(directory, name).is_symlink()}
        if here == ".":
            links = {name for name in links if not leads_elsewhere(root / name, root)}
        folders[:] = sorted(one for one in folders if not one.startswith(".") and one not in links)
        own = (name for name in sorted(files) if not name.startswith("."))
        found += [name if here == "." else f"{here}/{name}" for name in own]
    return found


def _listed(path: Path) -> list[str]:
    """Return the files listed in a text file, one per line, relative to the working directory."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RelookError(
            f"{one_line(str(path))}: expected a text file with one path per line: {error}"
        ) from None
    return [line.strip() for line in lines if line.strip()]


def _unlabelled_files(spec: str, wanted: Preparation) -> Dataset:
    source = open_source(spec, wanted)
    whole = range(len(source.names))
    found: list[Tensor | FullImages] = []
    places: list[int] = []
    # Photos at full size come in one block; others in several, so that they are never held twice.
    with closing(source.read([whole] if wanted.full_size else source.ranges())) as blocks:
        for block in blocks:
            if len(block.images):
                found.append(block.images)
                places += block.places
    if not places:
        raise RelookError(f"{spec}: expected images, got none that can be read")
    known = source.identify(places)
    labels = np.zeros(len(places), np.int64)
    return Dataset(_joined(found, len(places), known), labels, NO_CLASSES, spec, identities=known)


def _joined(parts: list[Tensor | FullImages], count: int, identities: Any) -> Tensor | FullImages:
    first = parts[0]
    if isinstance(first, FullImages):
        # Stored predictions are found by the images' fingerprints: those of their files.
        return replace(first, fingerprints=np.array([f"{one:016x}" for one in identities]))
    joined = torch.empty((count, *first.shape[1:]), dtype=torch.uint8)
    begin = 0
    while parts:
        part = parts.pop(0)
        joined[begin : begin + len(part)] = part  # type: ignore[assignment]
        begin += len(part)
    return joined
