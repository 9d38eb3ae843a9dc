"""Decodes untrusted image files in threads, to images or to the reason why it failed."""

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
from relook.foundation.wording import count, first_few, first_line
from relook.io.files import one_line
from relook.transforms.centre_crop import MOST_PIXELS, Size

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")
_UNREAD = (".heic", ".heif", ".jxl", ".tga", ".ico", ".psd", ".avif")  # images too, to be named
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
_MOST_THREADS = 8
_IN_FLIGHT = 4
_NAMED = 20

Item = TypeVar("Item")
Result = TypeVar("Result")
Faults = dict[int, str]
"""The reasons why files cannot be read, by the files' places."""


@dataclass(frozen=True)
class EncodedImage:
    """An image file within another file: its name for messages, its bytes, and an identifier."""

    name: str
    read: Callable[[], bytes]
    identity: str

    def __str__(self) -> str:
        return self.name


ImageFile = Path | EncodedImage


@dataclass(frozen=True)
class Unreadable:
    """The reason why a file cannot be used."""

    reason: str


@dataclass(frozen=True)
class ImageHead:
    """What the head of an image file declares; the size is that of the upright image."""

    size: Size
    grey: bool


def read_heads(
    files: Sequence[ImageFile], wanted: Preparation
) -> tuple[dict[int, ImageHead], Faults]:
    """Return the heads of files, and why others cannot be read, by the files' places."""
    _formats()  # load Pillow's decoders before threads start
    with quiet_pillow():
        found = dict(enumerate(map_in_threads(_read_head, files, wanted, "looking at files")))
    heads = {i: head for i, head in found.items() if isinstance(head, ImageHead)}
    return heads, {i: bad.reason for i, bad in found.items() if isinstance(bad, Unreadable)}


def _read_head(file: ImageFile) -> ImageHead | Unreadable:
    def head(image: Image.Image) -> ImageHead:
        if image.format == "TIFF":  # Pillow turns these itself when it loads them
            image.load()
        size = image.size[::-1] if _orientation(image) not in _TURNED else image.size
        return ImageHead(size, is_grey(image))

    return _use_image(file, head)


def decode_image(file: ImageFile, use: Callable[[Image.Image], Result]) -> Result | Unreadable:
    """Return `use(image)` of the decoded, upright image; any error becomes an Unreadable."""

    def content(image: Image.Image) -> Result:
        image.load()
        return use(upright(image))

    return _use_image(file, content)


def _use_image(file: ImageFile, use: Callable[[Image.Image], Result]) -> Result | Unreadable:
    """Return `use(image)` of the opened image; any error becomes an Unreadable."""
    try:
        source = _open(file)
        if isinstance(source, Unreadable):
            return source
        with Image.open(source, formats=_formats()) as image:
            if image.width * image.height > MOST_PIXELS:
                return _too_large(f"{image.height}×{image.width}, more")
            return use(image)
    except UnidentifiedImageError:
        return Unreadable("it is not an image that Pillow can read")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _too_large("more")
    except Exception as error:  # damaged files make decoders fail in any way
        return Unreadable(one_line(first_line(error)))


def _open(file: ImageFile) -> Path | IO[bytes] | Unreadable:
    if isinstance(file, EncodedImage):
        content = file.read()
        return io.BytesIO(content) if content else Unreadable("it is empty")
    if not file.is_file():
        return Unreadable("there is no such file" if not file.exists() else "it is not a file")
    return file if file.stat().st_size else Unreadable("it is empty")


def image_files(files: Sequence[Path], wanted: Preparation, where: str) -> list[Path]:
    """Leave out files that are images neither by their ending nor by content, and say how many."""
    with quiet_pillow():
        others = {file: one_line(file.name) for file in files if not _may_be_image(file)}
    if others:
        number = count(len(others), "file that is no image is", "files that are no images are")
        say = warn if wanted.log is None else wanted.log
        say(f"{where}: {number} ignored: {first_few([*others.values()])}")
    return [file for file in files if file not in others]


def _may_be_image(file: Path) -> bool:
    ending = file.suffix.lower()
    if not ending or ending in _endings():
        return True
    return not isinstance(_use_image(file, lambda image: None), Unreadable)


@cache
def _endings() -> frozenset[str]:
    Image.init()
    known = {end for end, name in Image.registered_extensions().items() if name in FORMATS}
    return frozenset((*known, *_UNREAD))


@cache
def _formats() -> tuple[str, ...]:
    """Return the formats that this Pillow was built with."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _too_large(size: str) -> Unreadable:
    return Unreadable(f"it declares {size} than the allowed {MOST_PIXELS:,} pixels")


def _orientation(image: Image.Image) -> int:
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged Exif block in an intact picture
        return 1
    return found if isinstance(found, int) else 1


def upright(image: Image.Image) -> Image.Image:
    """Return an image turned as its Exif block says."""
    if _orientation(image) not in range(2, 9):
        return image
    return ImageOps.exif_transpose(image)


def map_in_threads(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    wanted: Preparation,
    stage: str,
) -> Iterator[Result]:
    """Yield the results in order, computed by a few threads only a little ahead."""
    items = list(items)
    threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1))
    with made_ahead(function, items, threads * _IN_FLIGHT, threads) as results:
        for done, result in enumerate(results, start=1):
            yield result
            if wanted.progress is not None:
                wanted.progress(stage, done, len(items))


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings about odd files; raise those about decompression bombs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def report_faults(
    faults: Faults, files: Sequence[ImageFile], wanted: Preparation, where: str
) -> None:
    """Raise for unreadable files, or report them if `skip_bad`."""
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
    """Return the error for a data set without any readable file."""
    return FileFormatError(
        f"{where}: expected images, but none of the {files:,} files can be read as one"
    )
