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
_WHICH, _HOW_MUCH, _WAY, _FIRST_DRAW = range(4)


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
    """Return each uint8 image `[n, c, h, w]` under `length` transforms of its own.

    The transforms are drawn from the recipe with replacement, each with a magnitude uniform
    on [0, `magnitude`], between the recipe's start and finish; `length=0` leaves these two.
    Draws depend on seed, epoch and an image's index `[n]` in the data set, on nothing else.
    """
    check_images(images)
    recipe = get_recipe(recipe)
    lots = _Lots(check_seed(seed), epoch, np.asarray(indices, dtype=np.int64))
    if lots.indices.shape != (len(images),):
        raise RelookError(f"expected {len(images)} indices, got {list(lots.indices.shape)}")
    if length and not recipe.transforms:
        raise RelookError(f"recipe {recipe.name!r}: {length} steps asked for, but no transform")
    views = images.clone()
    everyone = np.arange(len(images))
    if recipe.start is not None:
        magnitudes = recipe.start.magnitude * lots.uniform(0, _HOW_MUCH)
        _apply(views, everyone, recipe.start.transform, magnitudes, lots, place=0)
    for place in range(1, length + 1):
        which = (lots.uniform(place, _WHICH) * len(recipe.transforms)).astype(np.int64)
        magnitudes = magnitude * lots.uniform(place, _HOW_MUCH)
        for number in np.unique(which):  # views with the same transform go together
            own = np.flatnonzero(which == number)
            _apply(views, own, recipe.transforms[number], magnitudes, lots, place)
    if recipe.finish is not None:
        magnitudes = np.full(len(images), recipe.finish.magnitude)
        _apply(views, everyone, recipe.finish.transform, magnitudes, lots, place=length + 1)
    return views


@dataclass(frozen=True)
class _Lots:
    """The uniform numbers of one epoch, for images by index in the data set."""

    seed: int
    epoch: int
    indices: NDArray[np.int64]

    def uniform(self, place: int, slot: int) -> NDArray[np.float64]:
        return uniforms(
            self.seed,
            image=self.indices,
            view=self.epoch,
            slot=place * _SLOTS_PER_STEP + slot,
            stream=Stream.TRAIN,
        )


def _apply(
    views: Tensor,
    members: NDArray[np.int64],
    transform: str,
    magnitudes: NDArray[np.float64],
    lots: _Lots,
    place: int,
) -> None:
    """Replace the members' views by transformed ones."""
    row = TRANSFORMS[transform]
    values = np.array([row.value(m) for m in magnitudes[members].tolist()])
    if row.signed:
        values *= to_draw("sign", lots.uniform(place, _WAY)[members])
    draws = {
        name: to_draw(name, lots.uniform(place, _FIRST_DRAW + i)[members])
        for i, name in enumerate(row.draws)
    }
    chosen = torch.from_numpy(members).to(views.device)
    views[chosen] = apply_steps(views[chosen], [AppliedStep(transform, values, draws)])
