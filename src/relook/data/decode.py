"""Image files decoded without trust, in a pool of threads: sound images, or reasons why not."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, TypeVar

from PIL import Image, ImageOps, UnidentifiedImageError

from relook.data.prepare import Preparation, is_grey
from relook.errors import FileFormatError, RelookError, warn
from relook.foundation.threads import made_ahead
from relook.foundation.wording import count, first_line
from relook.io.files import one_line
from relook.transforms.centre_crop import MOST_PIXELS, Size

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
_MOST_THREADS = 8
_IN_FLIGHT = 4
_NAMED = 20

Item = TypeVar("Item")
Result = TypeVar("Result")
Faults = dict[int, str]
"""Why files cannot be read, by their places."""


@dataclass(frozen=True)
class EncodedImage:
    """An image file within another file: a name for people, its bytes, and what identifies it."""

    name: str
    read: Callable[[], bytes]
    identity: str

    def __str__(self) -> str:
        return self.name


ImageFile = Path | EncodedImage


@dataclass(frozen=True)
class Bad:
    """Why a file cannot be used."""

    reason: str


@dataclass(frozen=True)
class Seen:
    """What a file's head says; the size is that of the upright image."""

    size: Size
    grey: bool


def look_at(files: Sequence[ImageFile], wanted: Preparation) -> tuple[dict[int, Seen], Faults]:
    """Return what the heads of files say, and which cannot be read, by their places."""
    _formats()  # loads Pillow's decoders, before there are threads
    with quiet():
        seen = dict(enumerate(mapped(_inspect, files, wanted, "looking at files")))
    heads = {i: head for i, head in seen.items() if isinstance(head, Seen)}
    return heads, {i: head.reason for i, head in seen.items() if isinstance(head, Bad)}


def _inspect(file: ImageFile) -> Seen | Bad:
    def head(image: Image.Image) -> Seen:
        if image.format == "TIFF":  # Pillow turns these itself, when they are loaded
            image.load()
        size = image.size[::-1] if _orientation(image) not in _TURNED else image.size
        return Seen(size, is_grey(image))

    return _with_image(file, head)


def decoded(file: ImageFile, use: Callable[[Image.Image], Result]) -> Result | Bad:
    """Decode an image file, turn it upright and use it; whatever that raises is a reason."""

    def content(image: Image.Image) -> Result:
        image.load()
        return use(upright(image))

    return _with_image(file, content)


def _with_image(file: ImageFile, use: Callable[[Image.Image], Result]) -> Result | Bad:
    """Open an image file and use it; whatever that raises becomes a reason."""
    try:
        source = _opened(file)
        if isinstance(source, Bad):
            return source
        with Image.open(source, formats=_formats()) as image:
            if image.width * image.height > MOST_PIXELS:
                return _too_large(f"{image.height}×{image.width}, more")
            return use(image)
    except UnidentifiedImageError:
        return Bad("it is not an image that Pillow can read")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _too_large("more")
    except Exception as error:  # damaged files make decoders fail in any way
        return Bad(one_line(first_line(error)))


def _opened(file: ImageFile) -> Path | IO[bytes] | Bad:
    if isinstance(file, EncodedImage):
        content = file.read()
        return io.BytesIO(content) if content else Bad("it is empty")
    if not file.is_file():
        return Bad("there is no such file" if not file.exists() else "it is not a file")
    return file if file.stat().st_size else Bad("it is empty")


@cache
def _formats() -> tuple[str, ...]:
    """Return those formats that this machine's Pillow was built with."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _too_large(size: str) -> Bad:
    return Bad(f"it declares {size} than the {MOST_PIXELS:,} pixels that one may have")


def _orientation(image: Image.Image) -> int:
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged block next to a sound picture
        return 1
    return found if isinstance(found, int) else 1


def upright(image: Image.Image) -> Image.Image:
    """Return an image turned as its Exif block says."""
    if _orientation(image) not in range(2, 9):
        return image
    return ImageOps.exif_transpose(image)


def mapped(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    wanted: Preparation,
    stage: str,
) -> Iterator[Result]:
    """Yield results in order, computed by a few threads that run only a little ahead."""
    items = list(items)
    threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1))
    with made_ahead(function, items, threads * _IN_FLIGHT, threads) as results:
        for done, result in enumerate(results, start=1):
            yield result
            if wanted.progress is not None:
                wanted.progress(stage, done, len(items))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Pillow's warnings about odd files to ourselves; a bomb's becomes an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def report_faults(
    faults: Faults, files: Sequence[ImageFile], wanted: Preparation, where: str
) -> None:
    """Raise for files that cannot be read, or report them where they may be skipped."""
    if not faults:
        return
    named = [f"{one_line(str(files[i]))}: {reason}" for i, reason in faults.items()]
    some = f"{len(faults):,} of {count(len(files), 'file')}"
    if not wanted.skip_bad:
        raise FileFormatError(
            f"{where}: {some} cannot be read as images; the first is {named[0]}; repair or remove "
            "them, or leave them out with skip_bad=True (--skip-bad)"
        )
    if len(faults) == len(files):
        raise nothing_left(where, len(files))
    more = [f"… and {len(named) - _NAMED:,} more"] if len(named) > _NAMED else []
    heading = f"{where}: {some} skipped, as they cannot be read as images"
    if wanted.log is None:
        warn(f"{heading}; the first is {named[0]}")
        return
    wanted.log(f"{heading}:")
    for line in (*named[:_NAMED], *more):
        wanted.log(f"  {line}")


def nothing_left(where: str, files: int) -> RelookError:
    """Build the error for a data set of which no file can be read."""
    return FileFormatError(
        f"{where}: expected images, but none of the {files:,} files can be read as one"
    )
