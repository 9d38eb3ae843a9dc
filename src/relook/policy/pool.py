"""Pools: the candidate sub-policies, drawn from a recipe by counter, and quasi-random views.

Quasi-random views are crops and mirror images that cover a recipe's range evenly, without learning.
A few quasi-random places average better than as many random ones, as quasi-Monte Carlo beats Monte
Carlo. The places follow the R2 sequence (Roberts 2018), the scales of photos' crops multiples of
the golden ratio. Every prefix of these has low discrepancy, so every prefix of the views covers the
range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, count, islice

import numpy as np

from relook.errors import RelookError
from relook.numerics.randomness import Stream, check_seed, uniforms
from relook.policy import DrawKind, Step, SubPolicy
from relook.policy.recipes import Group, Recipe, get_recipe
from relook.policy.views import freeze_subpolicy
from relook.transforms import TRANSFORMS

_SLOTS_PER_STEP = 3
_PLASTIC = 1.324717957244746  # the real root of x³ = x + 1
_GOLDEN = 0.6180339887498949
_RANGE = 0.75  # of the free range: crops at its edge move the picture furthest and help least
_LARGEST_SCALE = 28.0  # of scale_crop: 14 % of the area; photos gain from crops that differ much
_FIRST_SCALE = 0.4  # of that: the first crops keep 66, 33 and 86 % of the area
_MIDDLE = 0.5
CONSERVATIVE_SIZE = 80
"""The number of candidates, half of them quasi-random (docs/search-quality.md)."""

_QUASI_RANDOM = 40  # at most half of a conservative pool
_LOW_MAGNITUDE = ((1, 20.0), (2, 10.0))  # steps, largest magnitude: these complement crops best


@dataclass(frozen=True)
class Pool:
    """Candidate sub-policies; the first `defaults` of them are quasi-random views.

    A conservative selection takes these unless others prove better: in their order, or, if they
    differ too much (`in_order` is false), the best of them first.
    """

    candidates: tuple[SubPolicy, ...]
    defaults: int = 0
    in_order: bool = True


def sample_pool(
    recipe: Recipe | str,
    size: int | None = None,
    seed: int = 0,
    *,
    draws: DrawKind = "fixed",
    plain: bool = True,
) -> tuple[SubPolicy, ...]:
    """Draw a pool of `size` sub-policies (default: the recipe's size), the plain image last.

    A smaller pool keeps the groups' proportions and is a subset of the larger one.
    `draws="fixed"` draws signs, places and flips with the pool, once for all images; with
    `"fresh"` they are drawn for each image, as in the paper. `plain=False` leaves out the plain
    image, as the paper's ImageNet pool does.
    """
    recipe = get_recipe(recipe)
    seed = check_seed(seed)
    if draws not in ("fixed", "fresh"):
        raise RelookError(f"expected draws to be 'fixed' or 'fresh', got {draws!r}")
    total = sum(group.count for group in recipe.groups) if size is None else size - plain
    if total + plain < 1:
        raise RelookError(f"expected a pool of at least 1 sub-policy, got {size}")
    pool = [
        _sample(recipe, group, (number << 20) + i, seed, draws)
        for number, (group, count) in enumerate(
            zip(recipe.groups, _shares(recipe.groups, total), strict=True)
        )
        for i in range(count)
    ]
    return (*pool, SubPolicy()) if plain else tuple(pool)


def conservative_pool(
    recipe: Recipe | str,
    size: int | None = None,
    seed: int = 0,
    first: tuple[SubPolicy, ...] = (),
) -> Pool:
    """Return a pool of `size` that begins with quasi-random views, the plain image first.

    Then come the views `first`, as far as there is room. Of the rest, half are low-magnitude
    candidates with one or two steps, half are drawn from the recipe itself.
    """
    recipe = get_recipe(recipe)
    total = sum(group.count for group in recipe.groups) + 1 if size is None else size
    if total < 2:
        raise RelookError(f"expected a conservative pool of at least 2 sub-policies, got {size}")
    defaults = quasi_random_views(recipe, min(_QUASI_RANDOM, total // 2))
    leading = tuple(view for view in dict.fromkeys(first) if view not in defaults)
    leading = leading[: total - len(defaults)]
    drawn: tuple[SubPolicy, ...] = ()
    room = total - len(defaults) - len(leading)
    if room:
        drawn = sample_pool(_with_low_magnitudes(recipe), room, seed, plain=False)
    rest = tuple(view for view in drawn if view not in leading)
    shifts = (
        recipe.finish is not None
    )  # equally good in any order, unlike crops of photos, whose scales differ
    return Pool(defaults + leading + rest, len(defaults), in_order=shifts)


def _with_low_magnitudes(recipe: Recipe) -> Recipe:
    if not recipe.transforms:
        return recipe
    own = sum(group.count for group in recipe.groups)
    share = max(1, own // len(_LOW_MAGNITUDE))
    low = tuple(Group(share, length, magnitude) for length, magnitude in _LOW_MAGNITUDE)
    return replace(recipe, groups=(*low, *recipe.groups))


def _shares(groups: tuple[Group, ...], total: int) -> list[int]:
    """Split `total` in the groups' proportions, by largest remainder."""
    counts = np.array([group.count for group in groups], dtype=np.float64)
    exact = counts * total / counts.sum()
    shares = np.floor(exact).astype(int)
    order = np.argsort(-(exact - shares), kind="stable")
    shares[order[: total - shares.sum()]] += 1
    return [int(share) for share in shares]


def _sample(recipe: Recipe, group: Group, candidate: int, seed: int, draws: DrawKind) -> SubPolicy:
    steps = [
        _sample_step(recipe.transforms, group.magnitude, place, candidate, seed)
        for place in range(1, group.length + 1)
    ]
    if recipe.start is not None:
        largest = recipe.start.magnitude if group.start is None else group.start
        u = _uniform(seed, candidate, 0)
        steps.insert(0, Step(recipe.start.transform, largest * u))
    if not steps:  # an empty sub-policy would be the plain image, without its finish
        steps = [Step("identity", 0)]
    subpolicy = SubPolicy(tuple(steps), recipe.finish)
    if draws == "fresh":
        return subpolicy
    return freeze_subpolicy(subpolicy, seed, candidate, Stream.POOL)


def _sample_step(
    transforms: tuple[str, ...], largest: float, place: int, candidate: int, seed: int
) -> Step:
    slot = place * _SLOTS_PER_STEP
    which, how_much, way = (_uniform(seed, candidate, slot + i) for i in range(_SLOTS_PER_STEP))
    name = transforms[int(which * len(transforms))]
    direction = None
    if TRANSFORMS[name].signed:
        direction = -1 if way < 0.5 else 1
    return Step(name, largest * how_much, direction)


def _uniform(seed: int, candidate: int, slot: int) -> float:
    return float(uniforms(seed, image=1, view=candidate, slot=slot, stream=Stream.POOL))


def quasi_random_views(recipe: Recipe | str, views: int) -> tuple[SubPolicy, ...]:
    """Return the plain image and quasi-random crops; with small shifts also its mirror.

    A recipe without crops has only the plain image.
    """
    recipe = get_recipe(recipe)
    if recipe.finish is not None:
        found = _shifts(recipe.finish)
    elif recipe.start is not None:
        found = _scales(recipe.start)
    else:
        found = iter(())
    return tuple(islice(chain([SubPolicy()], found), views))


def probe_views(recipe: Recipe, views: int) -> tuple[SubPolicy, ...]:
    """Return quasi-random views that compare equal if two recipes make the same view."""
    return tuple(
        SubPolicy(tuple(map(_without_flip, view.steps)), view.finish and _without_flip(view.finish))
        for view in quasi_random_views(recipe, views)
    )


def _without_flip(step: Step) -> Step:
    """Return a step whose draws do not flip as its twin without a flip."""
    draws = step.fixed_draws
    if not draws or draws.pop("flip", 1.0):
        return step
    return Step(step.transform.removesuffix("_flip"), step.magnitude, draws=draws)


def _shifts(crop: Step) -> Iterator[SubPolicy]:
    flips = crop.transform.endswith("_flip")
    if flips:
        yield SubPolicy((Step("flip", 0),))
    for number in count(1):
        draws = _place(number, _RANGE) | ({"flip": float(number % 2)} if flips else {})
        yield SubPolicy((Step("identity", 0),), Step(crop.transform, crop.magnitude, draws=draws))


def _scales(crop: Step) -> Iterator[SubPolicy]:
    largest = min(_LARGEST_SCALE, crop.magnitude)
    for number in count(1):
        draws = _place(number) | {"area": _MIDDLE, "aspect": _MIDDLE}
        if crop.transform.endswith("_flip"):
            draws["flip"] = float(number % 2)
        scale = (_FIRST_SCALE - (number - 1) * _GOLDEN) % 1
        yield SubPolicy((Step(crop.transform, largest * scale, draws=draws),))


def _place(number: int, share: float = 1.0) -> dict[str, float]:
    """Return the place of the crop of this number, in the middle `share` of the free range."""
    places = ((_MIDDLE + number / divisor) % 1 for divisor in (_PLASTIC, _PLASTIC**2))
    x, y = (_MIDDLE + share * (place - _MIDDLE) for place in places)
    return {"x": x, "y": y}
