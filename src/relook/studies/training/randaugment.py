"""The paper's modified RandAugment for training (section 4 and appendix A)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from relook.errors import RelookError
from relook.numerics.randomness import Stream, check_seed, uniforms
from relook.policy.recipes import Recipe, get_recipe
from relook.policy.views import to_draw
from relook.transforms import TRANSFORMS
from relook.transforms.apply import apply_steps
from relook.transforms.checks import check_images
from relook.transforms.steps import AppliedStep

LENGTH = 3
MAGNITUDE = 45.0
_SLOTS_PER_STEP = 16
_TRANSFORM, _MAGNITUDE, _SIGN, _FIRST_DRAW = range(4)  # the slots of a step


def randaugment_batch(
    images: Tensor,
    *,
    recipe: Recipe | str,
    seed: int,
    epoch: int,
    indices: ArrayLike,
    length: int = LENGTH,
    magnitude: float = MAGNITUDE,
) -> Tensor:
    """Return uint8 images `[n, c, h, w]`, each under its own `length` transforms.

    The transforms are drawn from the recipe with replacement, each with a magnitude uniform
    on [0, `magnitude`], between the recipe's start and finish; `length=0` applies only these two.
    Draws depend only on seed, epoch and an image's index `[n]` in the data set.
    """
    check_images(images)
    recipe = get_recipe(recipe)
    draws = _Draws(check_seed(seed), epoch, np.asarray(indices, dtype=np.int64))
    if draws.indices.shape != (len(images),):
        raise RelookError(f"expected {len(images)} indices, got {list(draws.indices.shape)}")
    if length and not recipe.transforms:
        raise RelookError(f"recipe {recipe.name!r}: {length} steps requested, but no transforms")
    views = images.clone()
    every = np.arange(len(images))
    if recipe.start is not None:
        magnitudes = recipe.start.magnitude * draws.uniform(0, _MAGNITUDE)
        _apply(views, every, recipe.start.transform, magnitudes, draws, step=0)
    for step in range(1, length + 1):
        numbers = (draws.uniform(step, _TRANSFORM) * len(recipe.transforms)).astype(np.int64)
        magnitudes = magnitude * draws.uniform(step, _MAGNITUDE)
        for number in np.unique(numbers):  # views with the same transform go together
            members = np.flatnonzero(numbers == number)
            _apply(views, members, recipe.transforms[number], magnitudes, draws, step)
    if recipe.finish is not None:
        magnitudes = np.full(len(images), recipe.finish.magnitude)
        _apply(views, every, recipe.finish.transform, magnitudes, draws, step=length + 1)
    return views


@dataclass(frozen=True)
class _Draws:
    """The uniform random numbers of one epoch, for images by index in the data set."""

    seed: int
    epoch: int
    indices: NDArray[np.int64]

    def uniform(self, step: int, slot: int) -> NDArray[np.float64]:
        """Return a uniform number for each image, `[n]`."""
        return uniforms(
            self.seed,
            image=self.indices,
            view=self.epoch,
            slot=step * _SLOTS_PER_STEP + slot,
            stream=Stream.TRAIN,
        )


def _apply(
    views: Tensor,
    members: NDArray[np.int64],
    transform: str,
    magnitudes: NDArray[np.float64],
    draws: _Draws,
    step: int,
) -> None:
    """Replace the members' views by transformed ones."""
    row = TRANSFORMS[transform]
    values = np.array([row.value(m) for m in magnitudes[members].tolist()])
    if row.signed:
        values *= to_draw("sign", draws.uniform(step, _SIGN)[members])
    outcomes = {
        name: to_draw(name, draws.uniform(step, _FIRST_DRAW + i)[members])
        for i, name in enumerate(row.draws)
    }
    chosen = torch.from_numpy(members).to(views.device)
    views[chosen] = apply_steps(views[chosen], [AppliedStep(transform, values, outcomes)])
