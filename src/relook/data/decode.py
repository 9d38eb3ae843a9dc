"""Image files decoded without trust, in a pool of threads, into one array."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from relook.data.prepare import (
    MOST_PIXELS,
    Levels,
    Plan,
    Preparation,
    Size,
    check_memory,
    is_grey,
    make_plan,
    to_array,
)
from relook.errors import FileFormatError, RelookError
from relook.files import one_line

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "AVIF")
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)
_MOST_THREADS = 8
_IN_FLIGHT = 4
_NAMED = 20

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Bad:
    reason: str


@dataclass(frozen=True)
class _Seen:
    """What a file's head says; the size is that of the upright image."""

    size: Size
    grey: bool


def read_images(
    paths: Sequence[Path], wanted: Preparation, where: str
) -> tuple[Tensor, NDArray[np.int64]]:
    """Return the images `[n, c, h, w]` of files, and which of the files they are.

    Files that cannot be read raise one error that names the first and counts them, or are
    left out and told of with `skip_bad`.
    """
    _formats()  # loads Pillow's decoders, before there are threads
    with _quiet():
        seen = dict(enumerate(_mapped(_inspect, paths, wanted, "looking at files")))
    heads = {i: head for i, head in seen.items() if isinstance(head, _Seen)}
    faults = {i: head.reason for i, head in seen.items() if isinstance(head, _Bad)}
    _report(faults, paths, wanted, where)
    grey = all(head.grey for head in heads.values())
    plan = make_plan((head.size for head in heads.values()), grey, wanted, where)
    nbytes = check_memory(len(heads), plan, where)
    if wanted.tell is not None:
        wanted.tell(f"{where}: {len(heads):,} images of {plan}, {nbytes / 1e6:,.1f} MB")
    with _quiet():
        images, failed = _decoded([paths[i] for i in heads], plan, wanted)
    places = np.array(list(heads), dtype=np.int64)
    late = {int(places[row]): reason for row, reason in failed.items()}
    _report(late, paths, wanted, where)
    if not failed:
        return images, places
    kept = np.setdiff1d(np.arange(len(places)), list(failed))
    if not len(kept):
        raise _nothing_left(where, len(paths))
    return images[torch.from_numpy(kept)], places[kept]


def _decoded(paths: list[Path], plan: Plan, wanted: Preparation) -> tuple[Tensor, dict[int, str]]:
    images = torch.empty((len(paths), plan.channels, *plan.size), dtype=torch.uint8)
    rows, failed = images.numpy(), {}
    for row, levels in enumerate(_mapped(partial(_decode, plan), paths, wanted, "decoding")):
        if isinstance(levels, _Bad):
            failed[row] = levels.reason
        else:
            rows[row] = levels
    return images, failed


def _inspect(path: Path) -> _Seen | _Bad:
    def head(image: Image.Image) -> _Seen:
        if image.format == "TIFF":  # Pillow turns these itself, when they are loaded
            image.load()
        upright = image.size[::-1] if _orientation(image) not in _TURNED else image.size
        return _Seen(upright, is_grey(image))

    return _with_image(path, head)


def _decode(plan: Plan, path: Path) -> Levels | _Bad:
    def content(image: Image.Image) -> Levels:
        image.load()
        return to_array(_upright(image), plan)

    return _with_image(path, content)


def _with_image(path: Path, use: Callable[[Image.Image], Result]) -> Result | _Bad:
    """Open an image file and use it; whatever that raises becomes a reason."""
    try:
        if not path.is_file():
            return _Bad("there is no such file" if not path.exists() else "it is not a file")
        if path.stat().st_size == 0:
            return _Bad("it is empty")
        with Image.open(path, formats=_formats()) as image:
            if image.width * image.height > MOST_PIXELS:
                return _too_large(f"{image.height}×{image.width}, more")
            return use(image)
    except UnidentifiedImageError:
        return _Bad("it is not an image that Pillow can read")
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        return _too_large("more")
    except Exception as error:  # damaged files make decoders fail in any way
        why = next(iter(str(error).splitlines()), "") or type(error).__name__
        return _Bad(one_line(why))


@cache
def _formats() -> tuple[str, ...]:
    """Return those formats that this machine's Pillow was built with."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _too_large(size: str) -> _Bad:
    return _Bad(f"it declares {size} than the {MOST_PIXELS:,} pixels that one may have")


def _orientation(image: Image.Image) -> int:
    try:
        found = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged block beside a sound picture
        return 1
    return found if isinstance(found, int) else 1


def _upright(image: Image.Image) -> Image.Image:
    if _orientation(image) not in range(2, 9):
        return image
    return ImageOps.exif_transpose(image)


def _mapped(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    wanted: Preparation,
    stage: str,
) -> Iterator[Result]:
    """Yield results in order, computed by a few threads that run only a little ahead."""
    items = list(items)
    threads = max(1, min(_MOST_THREADS, os.cpu_count() or 1))
    with ThreadPoolExecutor(threads) as pool:
        rest = iter(items)
        waiting = [pool.submit(function, item) for item in islice(rest, threads * _IN_FLIGHT)]
        for done in range(1, len(items) + 1):
            yield waiting.pop(0).result()
            waiting += [pool.submit(function, item) for item in islice(rest, 1)]
            if wanted.progress is not None:
                wanted.progress(stage, done, len(items))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Pillow's warnings about odd files to ourselves; a bomb's becomes an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def _report(faults: dict[int, str], paths: Sequence[Path], wanted: Preparation, where: str) -> None:
    """Raise for files that cannot be read, or tell of them where they may be skipped."""
    if not faults:
        return
    named = [f"{one_line(str(paths[i]))}: {reason}" for i, reason in faults.items()]
    count = f"{len(faults):,} of {len(paths):,} files"
    if not wanted.skip_bad:
        raise FileFormatError(
            f"{where}: {count} cannot be read as images; the first is {named[0]}; mend or remove "
            "them, or leave them out with --skip-bad"
        )
    if len(faults) == len(paths):
        raise _nothing_left(where, len(paths))
    more = [f"… and {len(named) - _NAMED:,} more"] if len(named) > _NAMED else []
    heading = f"{where}: {count} skipped, as they cannot be read as images"
    if wanted.tell is None:
        warnings.warn(f"{heading}; the first is {named[0]}", stacklevel=2)
        return
    wanted.tell(f"{heading}:")
    for line in (*named[:_NAMED], *more):
        wanted.tell(f"  {line}")


def _nothing_left(where: str, files: int) -> RelookError:
    return FileFormatError(
        f"{where}: expected images, but none of the {files:,} files can be read as one"
    )
