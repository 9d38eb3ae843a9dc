"""Reads image files: all at one size into memory, or kept at full size.

At full size each file is decoded once, reduced if it is far larger than needed, and kept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import IO, TypeVar

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from relook.data.base import check_classes
from relook.data.decode import (
    EncodedImage,
    Faults,
    ImageFile,
    ImageHead,
    Unreadable,
    decode_image,
    map_in_threads,
    nothing_left,
    quiet_pillow,
    read_heads,
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
from relook.data.prepare import Preparation, check_memory, in_mode, make_plan, to_array
from relook.errors import RelookError
from relook.foundation.memory import size_text
from relook.foundation.wording import count
from relook.io.fingerprint import JSON, fingerprint
from relook.io.identities import Identities, file_identity
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

Found = tuple[Tensor | FullImages, NDArray[np.int64], Identities]
Keep = Callable[[Decoded], Decoded]
Result = TypeVar("Result")


def read_images(
    files: Sequence[ImageFile], classes: Sequence[str], wanted: Preparation, where: str
) -> Found:
    """Return the images of files, the places of these files, and the images' identities.

    Images are uint8 `[n, c, h, w]`, or kept at full size if that is wanted and not all have the
    input's size. Classes that cannot be the model's are refused before anything is decoded.
    Unreadable files raise one error; with `skip_bad` they are left out and reported.
    """
    check_classes(classes, where, wanted.outputs)
    reader = _Reader(files, wanted, where)
    if wanted.full_size:
        cached = reader.read_cache()
        if cached is not None:
            return cached
    heads, faults = read_heads(files, wanted)
    reader.report(faults)
    grey = all(head.grey for head in heads.values())
    plan = make_plan((head.size for head in heads.values()), grey, wanted, where)
    greys = sum(head.grey for head in heads.values())
    if greys and not grey and plan.channels > 1 and wanted.log is not None:
        wanted.log(f"{where}: {count(greys, 'grey image is', 'grey images are')} read as colour")
    if wanted.full_size and any(plan.changes(head.size) for head in heads.values()):
        return reader.read_full_size(heads, faults, plan)
    return reader.read_one_size(heads, plan)


@dataclass(frozen=True)
class _Reader:
    """Image files, how to prepare them, and their name in messages."""

    files: Sequence[ImageFile]
    wanted: Preparation
    where: str

    def read_cache(self) -> Found | None:
        """Return the images if an earlier command has decoded and kept them, else None."""
        for directory in (self.wanted.cache, self.wanted.overflow):
            if directory is None or self.wanted.size is None:
                continue
            found = find_decoded(directory, self._key())
            if found is not None:
                self.report(found.faults)
                plan = self.wanted.plan(self.wanted.size, found.channels)
                self._log(f"{_amount(found)}, decoded before, from {directory}")
                return _images(found, plan)
        return None

    def read_one_size(self, heads: dict[int, ImageHead], plan: CentreCrop) -> Found:
        """Decode the files whose heads are given, into images `[n, c, h, w]`."""
        nbytes = check_memory(len(heads), plan, self.where)
        shown = plan.described(head.size for head in heads.values())
        self._log(f"{len(heads):,} images of {shown}, {size_text(nbytes)}")
        images = torch.empty((len(heads), plan.channels, *plan.size), dtype=torch.uint8)
        rows, row_of = images.numpy(), {place: row for row, place in enumerate(heads)}
        places, identities = np.array(list(heads), np.int64), np.zeros(len(heads), np.uint64)
        failed: Faults = {}
        with quiet_pillow():
            for place, levels, identity in self._decode(
                heads, lambda image, _: to_array(image, plan), failed
            ):
                rows[row_of[place]], identities[row_of[place]] = levels, identity
        self.report(failed)
        if not failed:
            return images, places, identities
        kept = np.flatnonzero(~np.isin(places, list(failed)))
        if not len(kept):
            raise nothing_left(self.where, len(self.files))
        return images[torch.from_numpy(kept)], places[kept], identities[kept]

    def read_full_size(
        self, heads: dict[int, ImageHead], before: Faults, plan: CentreCrop
    ) -> Found:
        """Decode the files whose heads are given and keep them; `before` has the others' faults."""
        reduced = [kept_size(head.size, plan) for head in heads.values()]
        nbytes = sum(height * width for height, width in reduced) * plan.channels
        shapes = np.zeros((len(self.files), 2), np.int64)
        prints = np.full(len(self.files), "", "U32")
        identities, failed = np.zeros(len(self.files), np.uint64), Faults()

        def content(image: Image.Image, size: Size) -> tuple[Levels, str]:
            if (image.height, image.width) != size:
                got = f"{image.height}×{image.width}"
                raise ValueError(f"its size is {got}, but its head declares another")
            levels = full_levels(image, plan)
            return levels, fingerprint(levels)

        with quiet_pillow(), self._pixel_store(nbytes) as (write, keep, place):
            for i, (levels, mark), identity in self._decode(heads, content, failed):
                shapes[i], prints[i], identities[i] = levels.shape[:2], mark, identity
                write(levels)
            self.report(failed)
            faults = before | failed
            if len(faults) == len(self.files):
                raise nothing_left(self.where, len(self.files))
            none = np.empty(0, np.uint8)
            found = keep(Decoded(none, shapes, prints, identities, faults, plan.channels))
        views = plan.described(head.size for head in heads.values())
        self._log(f"decoded {_amount(found)}{place}; views are {views}")
        return _images(found, plan)

    def report(self, faults: Faults) -> None:
        """Raise for unreadable files, or report them if `skip_bad`."""
        report_faults(faults, self.files, self.wanted, self.where)

    def _decode(
        self,
        heads: dict[int, ImageHead],
        use: Callable[[Image.Image, Size], Result],
        failed: Faults,
    ) -> Iterator[tuple[int, Result, int]]:
        """Yield (place, result of `use`, identity) of each file whose head is given.

        `use` gets the upright image and the size that its head declares. Files that cannot be
        decoded are added to `failed`.
        """

        def decode(place: int) -> tuple[Result, int] | Unreadable:
            file = self.files[place]
            result = decode_image(file, lambda image: use(image, heads[place].size))
            if isinstance(result, Unreadable):
                return result
            if isinstance(file, EncodedImage):
                return result, file_identity(BytesIO(file.read()))
            with file.open(
                "rb"
            ) as content:  # it was just read, so it comes from the system's cache
                return result, file_identity(content)

        results = map_in_threads(decode, heads, self.wanted, "decoding")
        for place, found in zip(heads, results, strict=True):
            if isinstance(found, Unreadable):
                failed[place] = found.reason
            else:
                yield place, *found

    @contextmanager
    def _pixel_store(self, nbytes: int) -> Iterator[tuple[Write, Keep, str]]:
        """Yield a function that writes pixels, one that keeps them, and the place in words."""
        directory = self.wanted.cache
        if directory is None and nbytes > IN_MEMORY:
            directory = self.wanted.overflow
        if directory is not None:
            self._check_disk(directory, nbytes)
            with new_decoded(directory, self._key()) as (write, keep):
                yield write, keep, f" in {directory}"
        elif nbytes <= IN_MEMORY:
            yield *_in_memory(nbytes), " in memory"
        else:
            self._check_disk(Path(tempfile.gettempdir()), nbytes)
            with tempfile.TemporaryFile(prefix="relook-") as file:  # gone with the process
                yield *_in_file(file), " in a temporary file"

    def _key(self) -> str:
        sides: list[JSON] = [*(self.wanted.size or ())]
        channels, pillow = self.wanted.channels, PIL.__version__
        return key_of(self.files, [sides, channels, LARGEST, pillow, "with identities"])

    def _check_disk(self, directory: Path, nbytes: int) -> None:
        there = next(path for path in (directory, *directory.absolute().parents) if path.exists())
        free = shutil.disk_usage(there).free
        if nbytes > free:
            raise RelookError(
                f"{self.where}: the full-size images take {nbytes / 1e9:.1f} GB, but {there} has "
                f"{free / 1e9:.1f} GB free: give a cache on another disk, fewer images, or "
                "full_size=False (--full-size no)"
            )

    def _log(self, text: str) -> None:
        if self.wanted.log is not None:
            self.wanted.log(f"{self.where}: {text}")


def full_levels(image: Image.Image, plan: CentreCrop) -> Levels:
    """Return an image as it is kept, uint8 `[h, w, c]`; raise if no view can be cut from it."""
    size = (image.height, image.width)
    resized_size(size, plan)  # raises now if a view would fail later
    image = in_mode(image, "L" if plan.channels == 1 else "RGB")
    height, width = kept_size(size, plan)
    if (height, width) != size:
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image).reshape(height, width, plan.channels)


def reduce_photos(images: FullImages) -> FullImages:
    """Return photos of their original size at the size that they are kept at."""
    levels = [full_levels(images.picture(place), images.plan) for place in range(len(images))]
    return FullImages.of(levels, images.plan)


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


def _amount(found: Decoded) -> str:
    images = int((found.fingerprints != "").sum())
    return f"{count(images, 'full-size image')}, {size_text(len(found.pixels))}"
