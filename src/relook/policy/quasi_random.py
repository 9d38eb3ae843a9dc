"""Quasi-random views: crops and mirror images that cover a recipe's range evenly, nothing learned.

A few quasi-random places average better than as many drawn at random, for the reason that
quasi-Monte Carlo beats Monte Carlo. The places follow the R2 sequence (Roberts 2018), whose every
beginning has low discrepancy, so every beginning of the views covers the range as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

from relook.policy import Step, SubPolicy
from relook.policy.recipes import Recipe, get_recipe

_PLASTIC = 1.324717957244746  # the real root of x³ = x + 1
_RANGE = 0.75  # of the free range: its rim moves the picture furthest and helps least
_LOW_MAGNITUDE = 7.0  # scale_crop's magnitude: 78 % of the area
_MIDDLE = 0.5


def quasi_random_views(recipe: Recipe | str, views: int) -> tuple[SubPolicy, ...]:
    """Return the plain image, its mirror image if the recipe has them, and quasi-random crops.

    Fewer than `views` come back where the recipe neither crops nor mirrors.
    """
    recipe = get_recipe(recipe)
    crop = recipe.finish or recipe.start
    if crop is None:
        return (SubPolicy(),)[:views]
    return tuple(islice(_views(crop, is_finish=crop is recipe.finish), views))


def _views(crop: Step, is_finish: bool) -> Iterator[SubPolicy]:
    flips = crop.transform.endswith("_flip")
    yield SubPolicy()
    if flips:
        yield SubPolicy((Step("flip", 0),))
    for number in count(1):
        draws = {"x": _place(number, _PLASTIC), "y": _place(number, _PLASTIC**2)}
        if flips:
            draws["flip"] = float(number % 2)
        if is_finish:
            step = Step(crop.transform, crop.magnitude, draws=draws)
            yield SubPolicy((Step("identity", 0),), step)
        else:
            draws |= {"area": _MIDDLE, "aspect": _MIDDLE}
            yield SubPolicy(
                (Step(crop.transform, min(_LOW_MAGNITUDE, crop.magnitude), draws=draws),)
            )


def _place(number: int, divisor: float) -> float:
    """Return where in the free range [0, 1) the crop of this number lies."""
    return _MIDDLE + _RANGE * ((_MIDDLE + number / divisor) % 1 - _MIDDLE)
