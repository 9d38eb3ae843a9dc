"""Pictures on the page: the policy's views of real images, and the images that it changed."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from itertools import islice

import torch
from PIL import Image
from torch import Tensor

from relook.evaluation.comparison import ChangedImage, Comparison
from relook.foundation import wording
from relook.policy import Policy, Step, SubPolicy
from relook.report.markup import Html, element
from relook.report.pictures import policy_views, to_picture
from relook.report.run_files import Examples
from relook.report.style import shorten

_THUMBNAIL = 96
_MOST_THUMBNAILS = 240
_MOST_IMAGES = 6
_MOST_CARDS = 200
_LOSSLESS_SIDE = 64
_LONGEST_NAME = 60


def policy_cards(
    policy: Policy, examples: Examples | None, indices: Sequence[int], classes: Sequence[str]
) -> Html:
    """Return a card for each distinct view: its steps, its count, what it does to images."""
    distinct = len(policy.counts())
    if examples is None or not policy:
        cards = [_card(sub, count, len(policy), None) for sub, count in policy.counts()]
        return element("div", *cards[:_MOST_CARDS], _more(distinct), class_="cards")
    limit = max(1, min(_MOST_IMAGES, _MOST_THUMBNAILS // distinct))
    kept, images = examples.pick(list(indices)[:limit])
    names = [class_name(classes, examples.labels[examples.places[index]]) for index in kept]
    cards = [_original(images, names)] if kept else []
    for sub, count, views in islice(policy_views(policy, images, kept), _MOST_CARDS):
        cards.append(_card(sub, count, len(policy), _strip(views, names)))
    return element("div", *cards, _more(distinct), class_="cards")


def changed_cards(
    changed: Sequence[ChangedImage], examples: Examples | None, classes: Sequence[str]
) -> Html:
    """Return a card for each image: the picture, its class, what was said before and after."""
    cards = []
    for one in changed:
        _, images = (None, None) if examples is None else examples.pick([one.index])
        cards.append(_changed_card(one, images, classes))
    return element("ul", *cards, class_="changed")


def changed_words(comparison: Comparison) -> str:
    """Say how many images the policy put right and how many wrong."""
    gained, lost = comparison.gained_count, comparison.lost_count
    share = (gained - lost) / comparison.images if comparison.images else 0.0
    return (
        f"Of {wording.count(comparison.images, 'image')} the policy puts {gained:,} right that "
        f"the plain image got wrong, and gets {lost:,} wrong that were right: "
        f"{wording.signed(100 * share, 2)} points. In bold the true class, then the answer "
        "before and after, and the probability of the true class."
    )


def class_name(classes: Sequence[str], label: int) -> str:
    """Return a class's name, or its number where it has none."""
    known = 0 <= label < len(classes)
    return shorten(classes[label], _LONGEST_NAME) if known else f"class {label}"


def data_uri(image: Tensor) -> str:
    """Return an image `[c, h, w]` as a data URI: small ones exactly, large ones as thumbnails."""
    picture = to_picture(image)
    buffer = io.BytesIO()
    if max(picture.size) <= _LOSSLESS_SIDE:
        picture.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        picture.thumbnail((_THUMBNAIL, _THUMBNAIL), Image.Resampling.LANCZOS)
        picture.save(buffer, "JPEG", quality=88)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def image_element(image: Tensor, alt: str, side: int = 64) -> Html:
    """Return the image at about `side` pixels; the pixels of small ones stay sharp."""
    height, width = image.shape[1:]
    scale = side / max(height, width)
    small = max(height, width) <= _LOSSLESS_SIDE
    return element(
        "img",
        src=data_uri(image),
        alt=alt,
        width=round(width * scale),
        height=round(height * scale),
        class_="pixels" if small else None,
    )


def step_list(subpolicy: SubPolicy) -> Html:
    """Return the sub-policy's steps as a list, the constants of fixed draws in grey."""
    if subpolicy.is_plain:
        return element("ol", element("li", element("b", "plain image")), class_="steps")
    return element("ol", *(_step(step) for step in subpolicy.all_steps), class_="steps")


def _step(step: Step) -> Html:
    words = str(step).removeprefix(step.transform)
    strength, _, draws = words.partition(" (")
    constants = element("span", f" ({draws}", class_="draws") if draws else None
    return element("li", element("b", step.transform), strength, constants)


def _original(images: Tensor, names: Sequence[str]) -> Html:
    return element(
        "figure",
        element("figcaption", element("b", "The images"), class_="head"),
        _strip(images, names),
        class_="card original",
    )


def _card(subpolicy: SubPolicy, count: int, length: int, strip: Html | None) -> Html:
    share = f"{count} of {wording.count(length, 'entry', 'entries')}"
    return element(
        "figure",
        element(
            "figcaption",
            element("span", f"{count} ×", class_="count", title=share),
            step_list(subpolicy),
        ),
        strip,
        class_="card",
    )


def _strip(images: Tensor, names: Sequence[str]) -> Html:
    pictures = [
        image_element(image, name) for image, name in zip(torch.unbind(images), names, strict=True)
    ]
    return element("div", *pictures, class_="strip")


def _more(distinct: int) -> Html | None:
    if distinct <= _MOST_CARDS:
        return None
    return element("p", f"and {distinct - _MOST_CARDS} more, in policy.json", class_="faint")


def _changed_card(one: ChangedImage, images: Tensor | None, classes: Sequence[str]) -> Html:
    true, before, after = (class_name(classes, n) for n in (one.label, one.before, one.after))
    picture = None
    if images is not None and len(images):
        picture = image_element(images[0], f"image {one.index}, a {true}", 72)
    return element(
        "li",
        picture,
        element(
            "div",
            element("p", element("b", true), class_="name"),
            element("p", _answer(before, one.before == one.label), " → ",
                    _answer(after, one.after == one.label)),
            element(
                "p",
                f"p({true}) {one.probability_before:.2f} → {one.probability_after:.2f}",
                class_="faint",
            ),
            element("p", f"image {one.index}", class_="faint"),
        ),
    )  # fmt: skip


def _answer(name: str, right: bool) -> Html:
    return element("span", name, class_="right" if right else "wrong")
