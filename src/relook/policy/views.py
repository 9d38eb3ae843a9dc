"""Makes views from sub-policy, images and seed; the only place that draws their random parts.

A draw is a pure function of seed, image index, view index and its place in the sub-policy, so
views are the same bytes for any batch size, split, order or thread count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.numerics.randomness import Stream, check_seed, uniforms
from relook.policy import Step, SubPolicy
from relook.policy.recipes import Recipe, get_recipe
from relook.transforms import TRANSFORMS
from relook.transforms.apply import apply_steps
from relook.transforms.checks import check_images
from relook.transforms.full_images import FullImages, open_images
from relook.transforms.resampling import CROP_SHARES, aspect_of, aspect_ratio
from relook.transforms.steps import AppliedStep, Floats, StepError

_SLOTS_PER_STEP = 8
_SLOTS_PER_ATTEMPT = 1 << 16  # beyond the slots of every step
_ATTEMPTS = 10


def make_views(
    subpolicy: SubPolicy,
    images: Tensor | FullImages,
    *,
    seed: int,
    view: int = 0,
    first_index: int = 0,
    recipe: Recipe | str | None = None,
) -> Tensor:
    """Return one view of each uint8 image `[n, c, h, w]`; image i has index first_index + i.

    A sub-policy without a finish gets the recipe's; with `recipe=None` it is applied as it is.
    The plain image (no steps) stays plain under every recipe.
    """
    if not isinstance(images, FullImages):
        check_images(images)
    if recipe is not None and subpolicy.finish is None and subpolicy.steps:
        subpolicy = replace(subpolicy, finish=get_recipe(recipe).finish)
    indices = np.arange(first_index, first_index + len(images))
    return apply_subpolicy(subpolicy, images, indices, seed, view)


def apply_subpolicy(
    subpolicy: SubPolicy,
    images: Tensor | FullImages,
    indices: NDArray[np.int64],
    seed: int,
    view: int,
) -> Tensor:
    """Return one view of each image, drawn by the image's index in the data set.

    If the first step crops full-size images, it cuts from the large originals.
    """
    steps: Sequence[AppliedStep] = applied_steps(subpolicy, images, indices, seed, view)
    if isinstance(images, FullImages):
        images, steps = open_images(images, steps)
        if not steps:
            return images
    check_images(images)
    with naming_steps(subpolicy):
        return apply_steps(images, steps)


def applied_steps(
    subpolicy: SubPolicy,
    images: Tensor | FullImages,
    indices: NDArray[np.int64],
    seed: int,
    view: int,
) -> list[AppliedStep]:
    """Return the steps with their draws for each image."""
    check_seed(seed)

    def uniform(place: int, slot: int) -> Floats:
        return uniforms(seed, image=indices, view=view, slot=place * _SLOTS_PER_STEP + slot)

    draws = draws_for_batch(subpolicy.all_steps, indices, seed, view)
    steps = []
    for place, (step, drawn) in enumerate(zip(subpolicy.all_steps, draws, strict=True)):
        applied = AppliedStep(step.transform, np.full(len(images), step.value), drawn, place)
        fresh = step.draws is None
        steps.append(with_fitting_boxes(applied, images, uniform) if fresh else applied)
    return steps


def fixed_steps(subpolicy: SubPolicy) -> list[AppliedStep]:
    """Return a fixed sub-policy's steps, with one value and one of each draw for all images."""
    if not subpolicy.is_fixed:
        raise RelookError(
            f"expected a fixed sub-policy to export, got “{subpolicy}”, which is drawn anew for "
            "each image: freeze the policy with policy.freeze(seed)"
        )
    return [
        AppliedStep(
            step.transform,
            np.array([step.value]),
            {name: np.array([draw]) for name, draw in (step.fixed_draws or {}).items()},
            place,
        )
        for place, step in enumerate(subpolicy.all_steps)
    ]


@contextmanager
def naming_steps(subpolicy: SubPolicy) -> Iterator[None]:
    """Add the failing step of a sub-policy to the error's message."""
    try:
        yield
    except StepError as error:
        raise RelookError(f"step {error.place + 1} of “{subpolicy}”: {error}") from error


def freeze_subpolicy(
    subpolicy: SubPolicy, seed: int, view: int, stream: Stream = Stream.FREEZE
) -> SubPolicy:
    """Return the sub-policy with everything drawn once, for all images."""
    check_seed(seed)
    steps = [
        step
        if step.is_fixed
        else replace(
            step,
            draws={
                name: float(to_draw(name, uniforms(seed, view=view, slot=slot, stream=stream)))
                for name, slot in _slots(step, place).items()
            },
        )
        for place, step in enumerate(subpolicy.all_steps)
    ]
    if subpolicy.finish is None:
        return replace(subpolicy, steps=tuple(steps))
    return SubPolicy(tuple(steps[:-1]), steps[-1])


def draws_for_batch(
    steps: Sequence[Step], indices: NDArray[np.int64], seed: int, view: int
) -> list[dict[str, NDArray[np.float64]]]:
    """Return each step's draws by name, `[n]` each; all fresh ones are drawn in one call."""
    slots = [
        {} if step.draws is not None else _slots(step, place) for place, step in enumerate(steps)
    ]
    fresh = np.array([slot for step in slots for slot in step.values()], dtype=np.int64)
    drawn = iter(
        uniforms(seed, image=indices, view=view, slot=fresh[:, None]) if fresh.size else ()
    )
    return [
        {name: np.full(len(indices), value) for name, value in step.fixed_draws.items()}
        if step.fixed_draws is not None
        else {name: to_draw(name, next(drawn)) for name in slots[place]}
        for place, step in enumerate(steps)
    ]


def with_fitting_boxes(
    step: AppliedStep, images: Tensor | FullImages, uniform: Callable[[int, int], Floats]
) -> AppliedStep:
    """Draw a crop's area and aspect again for images that its box does not fit.

    After ten draws in all it takes the whole image, or the largest centred box with an aspect in
    the range, as the usual random resized crop. `uniform(place, slot)` draws from [0, 1) `[n]`.
    """
    if step.transform not in CROP_SHARES:
        return step
    height, width = _seen_sizes(images, first=step.place == 0)
    draws = dict(step.draws)
    for attempt in range(1, _ATTEMPTS + 1):
        shares = CROP_SHARES[step.transform](step.values, draws["area"])
        ratios = aspect_ratio(draws["aspect"])
        pixels = height * width * shares
        across, down = np.rint(np.sqrt(pixels * ratios)), np.rint(np.sqrt(pixels / ratios))
        misfit = (across > width) | (down > height)
        if not misfit.any():
            return replace(step, draws=draws)
        if attempt < _ATTEMPTS:
            for slot, name in enumerate(("area", "aspect")):
                again = uniform(step.place, slot + attempt * _SLOTS_PER_ATTEMPT)
                draws[name] = np.where(misfit, again, draws[name])
    aspects = aspect_of(width / height).clip(0.0, 1.0)
    excess = width / height / aspect_ratio(aspects)
    middle = np.full(len(misfit), 0.5)
    whole = {"area": np.zeros(len(misfit)), "aspect": aspects, "x": middle, "y": middle}
    draws |= {name: np.where(misfit, value, draws[name]) for name, value in whole.items()}
    values = np.where(misfit, np.minimum(excess, 1 / excess), step.values)
    return replace(step, values=values, draws=draws)


def _seen_sizes(images: Tensor | FullImages, first: bool) -> tuple[Floats, Floats]:
    """Return height and width `[n]` of a step's input; a first crop sees the original."""
    if isinstance(images, FullImages) and first:
        sizes = images.shapes
    else:
        sizes = np.tile(images.shape[2:], (len(images), 1))
    height, width = sizes.astype(np.float64).T
    return height, width


def _slots(step: Step, place: int) -> dict[str, int]:
    names = TRANSFORMS[step.transform].draws
    return {name: place * _SLOTS_PER_STEP + i for i, name in enumerate(names)}


def to_draw(name: str, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn uniform numbers in [0, 1) into draws: signs, edges, flips or places."""
    if name == "sign":
        return np.where(uniform < 0.5, -1.0, 1.0)
    if name in ("edge", "flip"):
        return np.where(uniform < 0.5, 0.0, 1.0)
    return np.asarray(uniform)
