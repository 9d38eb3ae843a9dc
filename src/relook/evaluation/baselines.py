"""BASELINES: the usual ways to average views, one row each, to compare a policy with.

CC, 5C, 10C, CF, MTrain and MGrid are the paper's (sections 3.2 and 4); the mirror image, the
eight dihedral views and the random policy are what people use as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from relook.errors import RelookError
from relook.foundation.registry import Table, check_names
from relook.io.identities import UNKNOWN
from relook.numerics.randomness import Stream, uniforms
from relook.policy import DrawKind, Policy, SubPolicy
from relook.policy.file import MOST_SUBPOLICIES
from relook.policy.pool import sample_pool
from relook.policy.presets import (
    CROP_OF_7_8,
    five_crops,
    mirror_image,
    plain_image,
    preset_of,
    random_crops,
    ten_crops,
    turns_and_flips,
)
from relook.policy.recipes import Group, Recipe
from relook.transforms.full_images import FullImages

GRID: tuple[float, ...] = tuple(float(m) for m in range(0, 60, 5))
"""The magnitudes that MGrid tries (the paper's figure on the magnitude: 0 … 55)."""

POLICY_METHOD = "gps"
"""The policy's own name among the methods."""

POLICY_LABEL = "learned policy (GPS)"

# The part of the pool's random stream that shuffles it; sample_pool itself uses image 1.
_SHUFFLE = 2


@dataclass(frozen=True)
class Options:
    """Options of the baselines: RandAugment has N steps, with magnitudes uniform on [0, M].

    `crop_zoom` is how far the five and ten crops enlarge. `grid_magnitude` is the M that the grid
    search found; it averages `grid_views` views to score one magnitude (the paper: 100).
    """

    length: int = 3
    magnitude: float = 45.0
    grid_magnitude: float | None = None
    grid_views: int = 20
    crop_zoom: float = CROP_OF_7_8

    def for_images(self, images: object) -> Options:
        """Return the options for these images: crops of full-size ones have the input's size."""
        return replace(self, crop_zoom=0.0) if isinstance(images, FullImages) else self


Maker = Callable[[Recipe, int, int, DrawKind, Options], Sequence[SubPolicy]]


@dataclass(frozen=True)
class Baseline:
    """One row: `make(recipe, views, seed, draws, options)` lists the sub-policies.

    `budget` is the number of views that the method always takes, None for any number; then the list
    for fewer views is the beginning of the list for more. `random`: another seed gives other views;
    `square`: images must be as high as wide.
    """

    name: str
    label: str
    about: str
    budget: int | None
    make: Maker
    random: bool = False
    square: bool = False
    needs_validation: bool = False

    def policy(
        self,
        recipe: Recipe,
        views: int | None = None,
        seed: int = 0,
        draws: DrawKind = "fixed",
        options: Options | None = None,
    ) -> Policy:
        """Return the baseline as a policy of `views` views (a fixed budget needs no number)."""
        wanted = self.budget if views is None else views
        if wanted is None or not 1 <= wanted <= MOST_SUBPOLICIES:
            raise RelookError(
                f"baseline {self.name!r}: expected a number of views up to {MOST_SUBPOLICIES:,}, "
                f"got {views}"
            )
        made = self.make(recipe, wanted, seed, draws, options or Options())
        seen = UNKNOWN if self.needs_validation else b""  # the others are found on no images
        return Policy(tuple(made), recipe=recipe.name, seed=seed, seen=seen)


def randaugment(
    recipe: Recipe, views: int, seed: int, draws: DrawKind, length: int, magnitude: float
) -> tuple[SubPolicy, ...]:
    """Draw one sub-policy per view: `length` steps, magnitudes uniform on [0, magnitude].

    The same seed at another magnitude gives the same transforms, scaled.
    """
    of_start = None if recipe.start is None else magnitude
    single = replace(recipe, groups=(Group(views, length, magnitude, of_start),))
    return sample_pool(single, views, seed, draws=draws, plain=False)


def _at_grid(
    recipe: Recipe, views: int, seed: int, draws: DrawKind, options: Options
) -> Sequence[SubPolicy]:
    if options.grid_magnitude is None:
        raise RelookError(
            "baseline 'mgrid': expected a magnitude from the grid search, got none: "
            "give validation images to search it on"
        )
    return randaugment(recipe, views, seed, draws, options.length, options.grid_magnitude)


def _from_pool(
    recipe: Recipe, views: int, seed: int, draws: DrawKind, _: Options
) -> Sequence[SubPolicy]:
    pool = _pool(recipe, seed, draws)
    keys = uniforms(seed, image=_SHUFFLE, view=np.arange(len(pool)), stream=Stream.POOL)
    return tuple(pool[i] for i in np.argsort(keys, kind="stable")[:views])


@lru_cache(maxsize=8)  # a pool of a thousand takes half a second, and is needed often
def _pool(recipe: Recipe, seed: int, draws: DrawKind) -> tuple[SubPolicy, ...]:
    return sample_pool(recipe, seed=seed, draws=draws)


BASELINES = Table(
    "baseline",
    (
        Baseline("plain", "plain image (CC)", "the image as it is", 1, lambda *_: plain_image()),
        Baseline(
            "flip", "mirror image", "the image and its mirror image", 2, lambda *_: mirror_image()
        ),
        Baseline(
            "5c",
            "5 crops (5C)",
            "four corner crops and a central one",
            5,
            lambda recipe, views, seed, draws, options: five_crops(options.crop_zoom),
        ),
        Baseline(
            "d4",
            "8 turns, flips (D4)",
            "all turns and flips",
            8,
            lambda *_: turns_and_flips(),
            square=True,
        ),
        Baseline(
            "10c",
            "10 crops (10C)",
            "five crops and their mirror images",
            10,
            lambda recipe, views, seed, draws, options: ten_crops(options.crop_zoom),
        ),
        Baseline(
            "cf",
            "random crops (CF)",
            "random crops, with flips where the recipe has them",
            None,
            lambda recipe, views, seed, draws, _: random_crops(recipe, views, seed, draws),
            random=True,
        ),
        Baseline(
            "mtrain",
            "RandAugment (MTrain)",
            "RandAugment with the magnitude of the training",
            None,
            lambda recipe, views, seed, draws, options: randaugment(
                recipe, views, seed, draws, options.length, options.magnitude
            ),
            random=True,
        ),
        Baseline(
            "mgrid",
            "RandAugment (MGrid)",
            "RandAugment with a magnitude found by grid search",
            None,
            _at_grid,
            random=True,
            needs_validation=True,
        ),
        Baseline(
            "random",
            "random policy",
            "sub-policies drawn from the pool at random",
            None,
            _from_pool,
            random=True,
        ),
    ),
)
"""All baselines by name, the plain image first."""


def register_baseline(
    name: str,
    make: Maker,
    *,
    label: str | None = None,
    about: str | None = None,
    budget: int | None = None,
    random: bool = False,
    square: bool = False,
) -> Maker:
    """Add a method that comparisons score next to a policy, by this name in `methods`.

    `make(recipe, views, seed, draws, options)` returns `views` sub-policies; the other arguments
    are those of `Baseline`. `relook.testing.check_baseline` checks it.
    """
    if name in (POLICY_METHOD, "policy", "crops"):
        raise RelookError(f"the baseline's name {name!r} means another method: choose another")
    BASELINES.add(
        Baseline(name, label or name, about or label or name, budget, make, random, square)
    )
    return make


def label_of(method: str) -> str:
    """Return a method's name in tables and figures."""
    return POLICY_LABEL if method == POLICY_METHOD else BASELINES[method].label


def policy_label(policy: Policy) -> str:
    """Return a policy's name in tables and figures; a preset has its own."""
    name = preset_of(policy)
    if name is None:
        return POLICY_LABEL
    return label_of("cf" if name == "crops" else name).partition(" (")[0]


def has_own_budget(method: str) -> bool:
    """Whether a method always takes the same number of views."""
    return method in BASELINES and BASELINES[method].budget is not None


def is_asked(method: str, budget: int, budgets: Sequence[int]) -> bool:
    """Whether a method's budget is among those that were asked for, or its own."""
    return budget in budgets or has_own_budget(method)


def check_methods(methods: Sequence[str] | None) -> tuple[str, ...]:
    """Return the methods to compare: those asked (default: all), plain and policy always."""
    known = (*BASELINES, POLICY_METHOD)
    check_names("method", methods or (), known)
    chosen = known if methods is None else {"plain", POLICY_METHOD, *methods}
    return tuple(name for name in known if name in chosen)
