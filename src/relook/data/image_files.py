"""Image files → a data set's images: all of one size in memory, or kept at full size.

At full size each file is decoded once, reduced where it is far larger than needed, and kept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.data.base import check_classes
from relook.data.decode import (
    Faults,
    ImageFile,
    Seen,
    decode_all,
    decoded_heads,
    look_at,
    nothing_left,
    quiet,
    report_faults,
)
from relook.data.decoded_cache import (
    Decoded,
    Write,
    append_pixels,
    find_decoded,
    key_of,
    map_file,
    new_decoded,
)
from relook.data.prepare import Preparation, in_mode, make_plan
from relook.errors import RelookError
from relook.foundation.memory import size_text
from relook.foundation.wording import count
from relook.io.fingerprint import JSON, fingerprint
from relook.io.identities import Identities
from relook.transforms.centre_crop import (
    LARGEST,
    CentreCrop,
    Levels,
    Size,
    kept_size,
    resized_size,
)
from relook.transforms.full_images import FullImages

IN_MEMORY = 500_000_000
"""Up to this many bytes stay in memory; more are mapped from a file."""

Found = tuple[FullImages, NDArray[np.int64], Identities]
Keep = Callable[[Decoded], Decoded]


def read_images(
    files: Sequence[ImageFile], classes: Sequence[str], wanted: Preparation, where: str
) -> tuple[Tensor | FullImages, NDArray[np.int64], Identities]:
    """Return the images of files, which of the files they are, and what identifies each.

    Classes that cannot be the model's are refused before anything is decoded.

    They are uint8 `[n, c, h, w]`, or kept at full size where that is wanted and they are not
    of the input's size already. Files that cannot be read raise one error that names the first
    and counts them, or are left out and reported with `skip_bad`.
    """
    check_classes(classes, where, wanted.outputs)
    if wanted.full_size:
        kept = _kept_before(files, wanted, where)
        if kept is not None:
            return kept
    heads, faults = look_at(files, wanted)
    report_faults(faults, files, wanted, where)
    grey = all(head.grey for head in heads.values())
    plan = make_plan((head.size for head in heads.values()), grey, wanted, where)
    if wanted.full_size and any(plan.changes(head.size) for head in heads.values()):
        return _read_full(files, heads, faults, plan, wanted, where)
    return decode_all(files, heads, plan, wanted, where)


def _kept_before(files: Sequence[ImageFile], wanted: Preparation, where: str) -> Found | None:
    """Return the images if an earlier command has decoded and kept them."""
    for directory in (wanted.cache, wanted.overflow):
        if directory is None or wanted.size is None:
            continue
        found = find_decoded(directory, _key(files, wanted))
        if found is not None:
            report_faults(found.faults, files, wanted, where)
            plan = wanted.plan(wanted.size, found.channels)
            _log(wanted, f"{where}: {_amount(found)}, decoded before, from {directory}")
            return _images(found, plan)
    return None


def _read_full(
    files: Sequence[ImageFile],
    heads: dict[int, Seen],
    faults: Faults,
    plan: CentreCrop,
    wanted: Preparation,
    where: str,
) -> Found:
    """Decode the files that have a head, and return them with which of the files they are."""
    reduced = [kept_size(head.size, plan) for head in heads.values()]
    nbytes = sum(height * width for height, width in reduced) * plan.channels
    with quiet(), _room(files, nbytes, wanted, where) as (write, keep, place):
        found = _decoded(files, heads, faults, plan, wanted, write)
        report_faults(
            {i: why for i, why in found.faults.items() if i not in faults}, files, wanted, where
        )
        if len(found.faults) == len(files):
            raise nothing_left(where, len(files))
        found = keep(found)
    views = plan.described(head.size for head in heads.values())
    _log(wanted, f"{where}: decoded {_amount(found)}{place}; views are {views}")
    return _images(found, plan)


def _decoded(
    files: Sequence[ImageFile],
    heads: dict[int, Seen],
    faults: Faults,
    plan: CentreCrop,
    wanted: Preparation,
    write: Write,
) -> Decoded:
    shapes = np.zeros((len(files), 2), np.int64)
    prints, identities = np.full(len(files), "", "U32"), np.zeros(len(files), np.uint64)
    faults = dict(faults)

    def content(image: Image.Image, size: Size) -> tuple[Levels, str]:
        if (image.height, image.width) != size:
            raise ValueError(f"its size is {image.height}×{image.width}, its head said another")
        levels = full_levels(image, plan)
        return levels, fingerprint(levels)

    for i, made, identity in decoded_heads(files, heads, content, wanted, faults):
        levels, prints[i] = made
        shapes[i], identities[i] = levels.shape[:2], identity
        write(levels)
    return Decoded(np.empty(0, np.uint8), shapes, prints, identities, faults, plan.channels)


def full_levels(image: Image.Image, plan: CentreCrop) -> Levels:
    """Return an image uint8 `[h, w, c]` as it is kept; one too small for a view raises."""
    size = (image.height, image.width)
    resized_size(size, plan)  # a view of it must not fail later
    image = in_mode(image, "L" if plan.channels == 1 else "RGB")
    height, width = kept_size(size, plan)
    if (height, width) != size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(height, width, plan.channels)


def kept(images: FullImages) -> FullImages:
    """Return photos of their own size as they are kept, to cut views from them."""
    levels = [full_levels(images.picture(place), images.plan) for place in range(len(images))]
    return FullImages.of(levels, images.plan)


@contextmanager
def _room(
    files: Sequence[ImageFile], nbytes: int, wanted: Preparation, where: str
) -> Iterator[tuple[Write, Keep, str]]:
    """Yield how to write pixels and to keep them at the end, and where that is, in words."""
    directory = wanted.cache
    if directory is None and nbytes > IN_MEMORY:
        directory = wanted.overflow
    if directory is not None:
        _check_disk(directory, nbytes, where)
        with new_decoded(directory, _key(files, wanted)) as (write, keep):
            yield write, keep, f" in {directory}"
    elif nbytes <= IN_MEMORY:
        yield *_in_memory(nbytes), " in memory"
    else:
        _check_disk(Path(tempfile.gettempdir()), nbytes, where)
        with tempfile.TemporaryFile(prefix="relook-") as file:  # gone with the process
            yield *_in_file(file), " in a temporary file"


def _in_memory(nbytes: int) -> tuple[Write, Keep]:
    pixels, end = np.empty(nbytes, np.uint8), 0

    def write(levels: Levels) -> None:
        nonlocal end
        pixels[end : end + levels.size] = levels.reshape(-1)
        end += levels.size

    return write, lambda found: replace(found, pixels=pixels[:end])


def _in_file(file: IO[bytes]) -> tuple[Write, Keep]:
    def keep(found: Decoded) -> Decoded:
        file.flush()
        return replace(found, pixels=map_file(file))

    return partial(append_pixels, file), keep


def _images(found: Decoded, plan: CentreCrop) -> Found:
    sizes = found.shapes.prod(axis=1) * found.channels
    kept = np.flatnonzero(sizes)
    starts = (np.cumsum(sizes) - sizes)[kept]
    images = FullImages(found.pixels, starts, found.shapes[kept], found.fingerprints[kept], plan)
    return images, kept, found.identities[kept]


def _key(files: Sequence[ImageFile], wanted: Preparation) -> str:
    sides: list[JSON] = [*(wanted.size or ())]
    return key_of(files, [sides, wanted.channels, LARGEST, PIL.__version__, "with identities"])


def _amount(found: Decoded) -> str:
    images = int((found.fingerprints != "").sum())
    return f"{count(images, 'full-size image')}, {size_text(len(found.pixels))}"


def _check_disk(directory: Path, nbytes: int, where: str) -> None:
    there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if nbytes > free:
        raise RelookError(
            f"{where}: the full-size images take {nbytes / 1e9:.1f} GB, but {there} has "
            f"{free / 1e9:.1f} GB free: give a cache on another disk, fewer images, or "
            "full_size=False (--full-size no)"
        )


def _log(wanted: Preparation, text: str) -> None:
    if wanted.log is not None:
        wanted.log(text)
