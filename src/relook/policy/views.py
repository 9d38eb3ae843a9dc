"""Sub-policy × images × seed → views: the only place that draws what a view is made with.

A draw is a pure function of (seed, image index, view index) and of its place in the
sub-policy, so views are the same bytes for any batch size, split, order or thread count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from relook.transforms.steps import AppliedStep, StepError

_SLOTS_PER_STEP = 8


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

    A sub-policy that carries no finish gets the recipe's; `recipe=None` applies it as it is.
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
    """Return one view of each image, whose draws belong to its index in the data set.

    Of full-size images, a first step that crops is cut from the large original.
    """
    check_seed(seed)
    draws = draws_for_batch(subpolicy.all_steps, indices, seed, view)
    steps: Sequence[AppliedStep] = [
        AppliedStep(step.transform, np.full(len(images), step.value), drawn, place)
        for place, (step, drawn) in enumerate(zip(subpolicy.all_steps, draws, strict=True))
    ]
    if isinstance(images, FullImages):
        images, steps = open_images(images, steps)
        if not steps:
            return images
    check_images(images)
    with naming_steps(subpolicy):
        return apply_steps(images, steps)


def fixed_steps(subpolicy: SubPolicy) -> list[AppliedStep]:
    """Return a fixed sub-policy's steps with one value and draw each, for all images."""
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
    """Say in the message which step of a sub-policy failed."""
    try:
        yield
    except StepError as error:
        raise RelookError(f"step {error.place + 1} of “{subpolicy}”: {error}") from error


def freeze_subpolicy(
    subpolicy: SubPolicy, seed: int, view: int, stream: Stream = Stream.FREEZE
) -> SubPolicy:
    """Return the sub-policy with every draw made once, for all images."""
    check_seed(seed)
    steps = [
        step
        if step.is_fixed
        else replace(step, draws=_scalar_draws(step, place, seed, view, stream))
        for place, step in enumerate(subpolicy.all_steps)
    ]
    if subpolicy.finish is None:
        return replace(subpolicy, steps=tuple(steps))
    return SubPolicy(tuple(steps[:-1]), steps[-1])


def draws_for_batch(
    steps: Sequence[Step], indices: NDArray[np.int64], seed: int, view: int
) -> list[dict[str, NDArray[np.float64]]]:
    """Return each step's draws by name, one for each image; all fresh ones in one go."""
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
        else {name: outcome(name, next(drawn)) for name in slots[place]}
        for place, step in enumerate(steps)
    ]


def _scalar_draws(
    step: Step, place: int, seed: int, view: int, stream: Stream
) -> Mapping[str, float]:
    return {
        name: float(outcome(name, uniforms(seed, view=view, slot=slot, stream=stream)))
        for name, slot in _slots(step, place).items()
    }


def _slots(step: Step, place: int) -> dict[str, int]:
    names = TRANSFORMS[step.transform].draws
    return {name: place * _SLOTS_PER_STEP + i for i, name in enumerate(names)}


def outcome(name: str, uniform: NDArray[np.float64]) -> NDArray[np.float64]:
    """Turn uniform numbers in [0, 1) into what is drawn: signs, edges, flips or places."""
    if name == "sign":
        return np.where(uniform < 0.5, -1.0, 1.0)
    if name in ("edge", "flip"):
        return np.where(uniform < 0.5, 0.0, 1.0)
    return np.asarray(uniform)
