"""Pictures on a page: the policy's views of real images, and the images that it changed."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from PIL import Image
from torch import Tensor

from relook.evaluation.comparison import ChangedImage
from relook.foundation import wording
from relook.policy import Policy, Step, SubPolicy
from relook.report.pictures import policy_views, to_picture
from relook.report.run_files import Examples
from relook.report.style import shorten

_THUMBNAIL = 96
_MOST_THUMBNAILS = 240
_MOST_IMAGES = 6
_MOST_CARDS = 200
_LOSSLESS_SIDE = 64
_LONGEST_NAME = 60


@dataclass(frozen=True)
class Picture:
    """An image inside the page (a data URI) and its size there; `sharp` keeps its pixels."""

    source: str
    alt: str
    width: int
    height: int
    sharp: bool


@dataclass(frozen=True)
class Card:
    """A distinct view: its count in the policy, its steps, what it does to images.

    A step is a transform, its strength and, with fixed draws, its constants.
    """

    count: int
    steps: tuple[tuple[str, str, str], ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Gallery:
    """A policy in words and its distinct views; `left_out` are those without a card."""

    words: str
    entries: int
    originals: tuple[Picture, ...]
    cards: tuple[Card, ...]
    left_out: int


@dataclass(frozen=True)
class Changed:
    """An image whose answer the policy changed, with the names of its classes."""

    index: int
    name: str
    before: str
    after: str
    was_right: bool
    is_right: bool
    probabilities: tuple[float, float]
    picture: Picture | None


def policy_gallery(
    policy: Policy, examples: Examples | None, indices: Sequence[int], classes: Sequence[str]
) -> Gallery:
    """Return a card for each distinct view, shown on those examples that `indices` name."""
    if examples is None or not policy:
        cards = (Card(count, _steps(sub)) for sub, count in policy.counts())
        return _gallery(policy, (), islice(cards, _MOST_CARDS))
    limit = max(1, min(_MOST_IMAGES, _MOST_THUMBNAILS // len(policy.counts())))
    kept, images = examples.pick(list(indices)[:limit])
    names = [class_name(classes, examples.labels[examples.places[index]]) for index in kept]
    cards = (
        Card(count, _steps(sub), _pictures(views, names))
        for sub, count, views in policy_views(policy, images, kept)
    )
    return _gallery(policy, _pictures(images, names), islice(cards, _MOST_CARDS))


def picture_gallery(policy: Policy, image: Tensor, most: int) -> Gallery:
    """Return a card for each distinct view of one image `[c, h, w]`, `most` at most."""
    cards = (
        Card(count, _steps(sub), (picture_of(views[0], str(sub)),))
        for sub, count, views in policy_views(policy, image[None])
    )
    return _gallery(policy, (), islice(cards, most))


def changed_images(
    changed: Iterable[ChangedImage], examples: Examples | None, classes: Sequence[str]
) -> list[Changed]:
    """Return each image with its class, what was said before and after, and its picture."""
    found = []
    for one in changed:
        true, before, after = (class_name(classes, n) for n in (one.label, one.before, one.after))
        images = () if examples is None else examples.pick([one.index])[1]
        shown = [picture_of(image, f"image {one.index}, a {true}", 72) for image in images]
        answers = (one.before == one.label, one.after == one.label)
        chances = (one.probability_before, one.probability_after)
        picture = shown[0] if shown else None
        found.append(Changed(one.index, true, before, after, *answers, chances, picture))
    return found


def class_name(classes: Sequence[str], label: int) -> str:
    """Return a class's name, or its number where it has none."""
    known = 0 <= label < len(classes)
    return shorten(classes[label], _LONGEST_NAME) if known else f"class {label}"


def policy_words(policy: Policy) -> str:
    """Say in a sentence what a policy is: entries, views, draws, recipe."""
    entries = wording.count(len(policy), "entry", "entries")
    views = wording.count(policy.views, "model pass", "model passes")
    kind = "fixed (the same for every image)" if policy.is_fixed else "fresh (new for each image)"
    recipe = "" if policy.recipe is None else f" From the recipe {policy.recipe}."
    return (
        f"{entries}, {wording.count(len(policy.counts()), 'distinct view')}, {views} per image; "
        f"draws are {kind}.{recipe} Each view counts as often as it stands in the policy."
    )


def picture_of(image: Tensor, alt: str, side: int = 64) -> Picture:
    """Return the image `[c, h, w]` at about `side` pixels: small ones exactly, others shrunk."""
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
    source = f"data:image/{'png' if small else 'jpeg'};base64,{content}"
    return Picture(source, alt, width, height, small)


def _gallery(policy: Policy, originals: tuple[Picture, ...], cards: Iterable[Card]) -> Gallery:
    shown = tuple(cards)
    left_out = len(policy.counts()) - len(shown)
    return Gallery(policy_words(policy), len(policy), originals, shown, left_out)


def _pictures(images: Tensor, names: Sequence[str]) -> tuple[Picture, ...]:
    return tuple(picture_of(image, name) for image, name in zip(images, names, strict=True))


def _steps(subpolicy: SubPolicy) -> tuple[tuple[str, str, str], ...]:
    if subpolicy.is_plain:
        return (("plain image", "", ""),)
    return tuple(_step(step) for step in subpolicy.all_steps)


def _step(step: Step) -> tuple[str, str, str]:
    strength, bracket, draws = str(step).removeprefix(step.transform).partition(" (")
    return step.transform, strength, bracket + draws
