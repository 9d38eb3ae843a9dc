"""Pools: the candidate sub-policies, drawn from a recipe by counter, and quasi-random views.

Quasi-random views are crops and mirror images that cover a recipe's range evenly, nothing learned.
A few quasi-random places average better than as many drawn at random, for the reason that
quasi-Monte Carlo beats Monte Carlo. The places follow the R2 sequence (Roberts 2018) and the scales
of photos' crops multiples of the golden ratio; every beginning of these has low discrepancy, so
every beginning of the views covers the range as well.
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
_RANGE = 0.75  # of the free range: its rim moves the picture furthest and helps least
_LARGEST_SCALE = 28.0  # scale_crop's magnitude: 14 % of the area; photos gain by unlike crops
_FIRST_SCALE = 0.4  # of that: the first crop keeps 66 % of the area, the next ones 33 and 86 %
_MIDDLE = 0.5
CONSERVATIVE_SIZE = 80
"""Candidates of a conservative search: half are quasi-random crops (docs/search-quality.md)."""

_QUASI_RANDOM = 40  # of a conservative pool, or half of it if that is less
_LOW_MAGNITUDE = ((1, 20.0), (2, 10.0))  # steps and largest magnitude: what complements crops best


@dataclass(frozen=True)
class Pool:
    """Candidate sub-policies; the first `defaults` of them are quasi-random crops.

    A conservative selection takes these unless others prove better: in their order, or, where
    they are too unlike for that, the best of them first (`in_order`).
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
    """Draw a pool of `size` sub-policies (default: the recipe's own), the plain image last.

    A smaller pool keeps the groups' proportions, and its members are members of the larger
    one. `draws="fixed"` draws signs, places and flips with the pool, once for all images;
    `"fresh"` leaves them to be drawn for each image, as in the paper. `plain=False` leaves
    the plain image out, as the paper's ImageNet pool does.
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
    """Return a pool of `size` that begins with quasi-random crops, the plain image first.

    After these come the `first` of the others, as far as there is room. Half of the rest are
    low-magnitude candidates, with one or two steps; half are the recipe's own.
    """
    recipe = get_recipe(recipe)
    total = sum(group.count for group in recipe.groups) + 1 if size is None else size
    if total < 2:
        raise RelookError(f"expected a conservative pool of at least 2 sub-policies, got {size}")
    defaults = quasi_random_views(recipe, min(_QUASI_RANDOM, total // 2))
    named = tuple(view for view in dict.fromkeys(first) if view not in defaults)
    named = named[: total - len(defaults)]
    drawn: tuple[SubPolicy, ...] = ()
    room = total - len(defaults) - len(named)
    if room:
        drawn = sample_pool(_with_low_magnitudes(recipe), room, seed, plain=False)
    rest = tuple(view for view in drawn if view not in named)
    shifts = recipe.finish is not None  # all alike; crops of photos show more or less of them
    return Pool(defaults + named + rest, len(defaults), in_order=shifts)


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
    """Return the plain image and quasi-random crops; where crops are small shifts, also its mirror.

    Fewer than `views` come back where the recipe neither crops nor mirrors.
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
    """Return quasi-random views that are equal where two recipes make the same view."""
    return tuple(
        SubPolicy(tuple(map(_without_flip, one.steps)), one.finish and _without_flip(one.finish))
        for one in quasi_random_views(recipe, views)
    )


def _without_flip(step: Step) -> Step:
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
    """Return where the crop of this number lies, in the middle `share` of the free range [0, 1)."""
    places = ((_MIDDLE + number / divisor) % 1 for divisor in (_PLASTIC, _PLASTIC**2))
    x, y = (_MIDDLE + share * (place - _MIDDLE) for place in places)
    return {"x": x, "y": y}
