"""Presets: ready-made policies, by name.

`preset:NAME` can replace any policy file; it may have options, as in `preset:crops?views=10`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType

from relook.errors import RelookError, unknown_name
from relook.foundation.registry import split_query
from relook.policy.policy import DrawKind, Policy, Step, SubPolicy
from relook.policy.recipes import RECIPES, Recipe, get_recipe
from relook.policy.views import freeze_subpolicy

CROP_OF_7_8 = 7.5
"""The zoom of the five and ten crops: 7/8 of the side."""

PREFIX = "preset:"

_RECIPE = "cifar"
_CROPS = 20
_CORNERS = ((0.5, 0.5), (0.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 1.0))
_OPTIONS: Mapping[str, tuple[str, ...]] = {"views": (), "recipe": (), "seed": ()}


def plain_image() -> tuple[SubPolicy, ...]:
    """Return the image as it is."""
    return (SubPolicy(),)


def mirror_image() -> tuple[SubPolicy, ...]:
    """Return the image and its mirror image."""
    return (SubPolicy(), SubPolicy((Step("flip", 0),)))


def five_crops(zoom: float = CROP_OF_7_8) -> tuple[SubPolicy, ...]:
    """Return a central crop and four corner crops."""
    return tuple(SubPolicy((Step("zoom", zoom, draws={"x": x, "y": y}),)) for x, y in _CORNERS)


def ten_crops(zoom: float = CROP_OF_7_8) -> tuple[SubPolicy, ...]:
    """Return five crops and their mirror images."""
    upright = five_crops(zoom)
    return (*upright, *(SubPolicy((*sub.steps, Step("flip", 0))) for sub in upright))


def turns_and_flips() -> tuple[SubPolicy, ...]:
    """Return the eight symmetries of a square."""
    turns = [(Step("quarter_turn", quarters),) if quarters else () for quarters in range(4)]
    ends: tuple[tuple[Step, ...], ...] = ((), (Step("flip", 0),))
    return tuple(SubPolicy((*turn, *end)) for end in ends for turn in turns)


def random_crops(recipe: Recipe, views: int, seed: int, draws: DrawKind) -> tuple[SubPolicy, ...]:
    """Return random crops of the recipe's kind, with flips if it flips."""
    return tuple(_random_crop(recipe, view, seed, draws) for view in range(views))


def _random_crop(recipe: Recipe, view: int, seed: int, draws: DrawKind) -> SubPolicy:
    steps: tuple[Step, ...] = ()
    finish = recipe.finish
    if recipe.start is not None:
        # The usual random resized crop: any scale down to the start's smallest.
        any_scale = recipe.start.transform.replace("scale_crop", "resized_crop")
        steps = (Step(any_scale, recipe.start.magnitude),)
    elif finish is None:
        finish = Step("crop", max(1, (recipe.image_size or 32) // 8))
    subpolicy = SubPolicy(steps, finish)
    return subpolicy if draws == "fresh" else freeze_subpolicy(subpolicy, seed, view)


Maker = Callable[[Recipe, int, int], tuple[SubPolicy, ...]]

PRESETS: Mapping[str, Maker] = MappingProxyType(
    {
        "plain": lambda *_: plain_image(),
        "flip": lambda *_: mirror_image(),
        "5c": lambda *_: five_crops(),
        "d4": lambda *_: turns_and_flips(),
        "10c": lambda *_: ten_crops(),
        "crops": lambda recipe, views, seed: random_crops(recipe, views, seed, "fixed"),
    }
)
"""The presets by name: `make(recipe, views, seed)` returns their sub-policies."""


def preset(
    name: str, views: int | None = None, *, recipe: Recipe | str | Path = _RECIPE, seed: int = 0
) -> Policy:
    """Return a preset, or its first `views` views; 20 random crops by default.

    Random crops are drawn from `recipe` with `seed`. The policy has seen no images.
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    crops = get_recipe(recipe)
    made = PRESETS[name](crops, _CROPS if views is None else max(1, views), seed)
    if views is not None and not 1 <= views <= len(made):
        raise RelookError(f"preset {name!r}: expected 1 to {len(made)} views, got {views}")
    return Policy(made[:views], recipe=crops.name, seed=seed, seen=b"")


def is_preset(policy: object) -> bool:
    """Whether a policy is given as a preset: `flip` or `preset:flip`."""
    return (isinstance(policy, str) and policy in PRESETS) or (
        isinstance(policy, str | Path) and str(policy).startswith(PREFIX)
    )


def preset_name(text: str | Path) -> str:
    """Return NAME of `preset:NAME?views=10`."""
    return str(text).removeprefix(PREFIX).partition("?")[0]


def nearest_preset(path: str | Path) -> str | None:
    """Return the preset, as `preset:NAME`, that a path without a file probably means."""
    near = get_close_matches(str(path), PRESETS, n=1)
    return PREFIX + near[0] if near and not Path(path).exists() else None


def preset_of(policy: Policy) -> str | None:
    """Return the preset with a policy's sub-policies, or None; fitted numbers do not matter."""
    crops = RECIPES.get(policy.recipe or _RECIPE, RECIPES[_RECIPE])
    made = {name: make(crops, len(policy), policy.seed) for name, make in PRESETS.items()}
    return next((name for name, subs in made.items() if subs and subs == policy.subpolicies), None)


def named_preset(text: str | Path) -> Policy:
    """Read `flip`, `preset:flip` or `preset:crops?views=10&recipe=imagenet`."""
    name, options = split_query(str(text).removeprefix(PREFIX), "preset", _OPTIONS)
    for key in ("views", "seed"):
        if not options.get(key, "0").isdecimal():
            raise RelookError(f"{text}: expected {key} as a whole number, got {options[key]!r}")
    views = int(options["views"]) if "views" in options else None
    recipe, seed = options.get("recipe", _RECIPE), int(options.get("seed", "0"))
    return preset(name, views, recipe=recipe, seed=seed)
