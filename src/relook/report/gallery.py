"""Pictures on a page: the policy's views of real images, and images whose answer it changed."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image
from torch import Tensor

from relook.evaluation.suspects import Suspects
from relook.io.files import write_text_atomic
from relook.policy import Policy, SubPolicy
from relook.report.html import render
from relook.report.pictures import policy_views, to_picture
from relook.report.run_files import Examples
from relook.report.style import shorten

_THUMBNAIL = 96
_MOST_THUMBNAILS = 240
_MOST_IMAGES = 6
_MOST_CARDS = 200
_LOSSLESS_SIDE = 64
_LONGEST_NAME = 60
_MOST_SUSPECTS = 60
_SUSPECT_SIDE = 96


@dataclass(frozen=True)
class Picture:
    """An image inside the page (a data URI) and its size there; `sharp` keeps its pixels."""

    source: str
    width: int
    height: int
    sharp: bool


@dataclass(frozen=True)
class Card:
    """A distinct view: its count in the policy, and pictures of it on each image."""

    subpolicy: SubPolicy
    count: int
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """A policy's distinct views on images with these names; some may lack a card."""

    policy: Policy
    cards: tuple[Card, ...]
    originals: tuple[Picture, ...] = ()
    names: tuple[str, ...] = ()


def policy_gallery(
    policy: Policy, examples: Examples | None, indices: Sequence[int], classes: Sequence[str]
) -> Gallery:
    """Return a card for each distinct view, shown on the first examples of `indices`."""
    if examples is None or not policy:
        return Gallery(policy, tuple(Card(*one) for one in policy.counts()[:_MOST_CARDS]))
    limit = max(1, min(_MOST_IMAGES, _MOST_THUMBNAILS // len(policy.counts())))
    kept, images = examples.pick(list(indices)[:limit])
    labels = (examples.labels[examples.places[index]] for index in kept)
    names = tuple(class_name(classes, label) for label in labels)
    return Gallery(policy, _cards(policy, images, kept, _MOST_CARDS), _pictures(images), names)


def picture_gallery(policy: Policy, image: Tensor, most: int) -> Gallery:
    """Return a card for each distinct view of one image `[c, h, w]`, `most` at most."""
    return Gallery(policy, _cards(policy, image[None], [0], most))


def kept_pictures(
    indices: Iterable[int], examples: Examples | None, side: int
) -> Mapping[int, Picture]:
    """Return the pictures of those images that were kept, by their index."""
    if examples is None:
        return {}
    kept, images = examples.pick(list(indices))
    return {index: picture_of(image, side) for index, image in zip(kept, images, strict=True)}


def images_text(examples: Examples | None, indices: Sequence[int]) -> str:
    """Return the files of these images, or `image 233`, `images 278, 1171` if they have none."""
    files = [examples and examples.name(index) for index in indices]
    if all(files):
        return ", ".join(shorten(str(file), _LONGEST_NAME) for file in files)
    return f"image{'s' if len(files) > 1 else ''} {', '.join(map(str, indices))}"


def class_name(classes: Sequence[str], label: int) -> str:
    """Return a class's name, or its number if it has none."""
    known = 0 <= label < len(classes)
    return shorten(classes[label], _LONGEST_NAME) if known else f"class {label}"


def picture_of(image: Tensor, side: int = 64) -> Picture:
    """Return the image `[c, h, w]` at about `side` pixels: small ones lossless, others shrunk."""
    picture = to_picture(image)
    scale = side / max(picture.size)
    width, height = (round(length * scale) for length in picture.size)
    small = max(picture.size) <= _LOSSLESS_SIDE
    buffer = io.BytesIO()
    if small:
        picture.save(buffer, "PNG", optimize=True)
    else:
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
        picture.save(buffer, "JPEG", quality=88)
    content = base64.b64encode(buffer.getvalue()).decode()
    kind = "png" if small else "jpeg"
    return Picture(f"data:image/{kind};base64,{content}", width, height, small)


def _cards(policy: Policy, images: Tensor, indices: Sequence[int], most: int) -> tuple[Card, ...]:
    shown = islice(policy_views(policy, images, indices), most)
    return tuple(Card(sub, count, _pictures(views)) for sub, count, views in shown)


def _pictures(images: Tensor) -> tuple[Picture, ...]:
    return tuple(map(picture_of, images))


def save_suspects(
    suspects: Suspects, csv: str | Path | None = None, gallery: str | Path | None = None
) -> None:
    """Write the suspects as CSV, as a page of pictures, or both."""
    if csv is not None:
        suspects.to_csv(csv)
    if gallery is not None:
        write_text_atomic(Path(gallery), _suspects_page(suspects))


def _suspects_page(suspects: Suspects) -> str:
    shown = suspects.found[:_MOST_SUSPECTS]
    places = np.array([one.index for one in shown], dtype=np.int64)
    plain = suspects.dataset.subset(places).plain if shown else ()
    pictures = [picture_of(image, _SUSPECT_SIDE) for image in plain]
    cards = list(zip(shown, pictures, strict=True))
    how = {"suspects": suspects, "cards": cards, "shorten": shorten, "sections": {}}
    return str(render("suspects.html", **how))
