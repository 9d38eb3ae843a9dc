"""Recipes: the prior over sub-policies that a pool is drawn from, as plain data.

A recipe is one of RECIPES, or a TOML file of the user's own (docs/howto/recipes.md).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.registry import by_name
from relook.io.files import describe
from relook.policy import Step
from relook.transforms import TRANSFORMS

_CROPS = ("crop", "crop_flip")
STARTS = ("scale_crop", "scale_crop_flip")
"""The crops that a sub-policy may begin with; of full-size images they see the original."""

_WITHOUT_FLIP = {"crop_flip": "crop", "scale_crop_flip": "scale_crop"}
_MOST_CANDIDATES = 1_000_000
_LONGEST = 16
_LARGEST_FILE = 1_000_000
_LARGEST_SIDE = 100_000


@dataclass(frozen=True)
class Group:
    """`count` sub-policies of `length` steps, each magnitude uniform on [0, `magnitude`]."""

    count: int
    length: int
    magnitude: float


@dataclass(frozen=True)
class Recipe:
    """A prior over sub-policies: groups of random steps between a start and a finish.

    `start` is a crop whose magnitude is drawn from [0, its magnitude]; `finish` is the crop
    that ends each sub-policy. `image_size` is the side in pixels that it is meant for.
    """

    name: str
    transforms: tuple[str, ...]
    groups: tuple[Group, ...]
    start: Step | None = None
    finish: Step | None = None
    image_size: int | None = None

    def __post_init__(self) -> None:
        _check_transforms(self)
        _check_groups(self)
        _check_ends(self)

    def without(self, names: Iterable[str]) -> Recipe:
        """Return the recipe with transforms left out; `flip` takes the mirror images out."""
        recipe = self
        for name in names:
            recipe = _without(recipe, name.strip())
        return recipe

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON-able data, for run records and fingerprints."""
        return asdict(self)


def _check_transforms(recipe: Recipe) -> None:
    if not recipe.name.isprintable() or not 0 < len(recipe.name) <= 200:
        raise _nonsense(recipe, "expected a name of up to 200 printable characters")
    for name in recipe.transforms:
        if name not in TRANSFORMS:
            raise _nonsense(recipe, str(unknown_name("transform", name, TRANSFORMS)))
        if name in STARTS + _CROPS:
            raise _nonsense(recipe, f"{name} can only be the start or the finish")
    if len(set(recipe.transforms)) != len(recipe.transforms):
        raise _nonsense(recipe, "a transform is listed twice")


def _check_groups(recipe: Recipe) -> None:
    for group in recipe.groups:
        if not (_whole(group.count) and 0 < group.count <= _MOST_CANDIDATES):
            raise _nonsense(
                recipe, f"expected a count from 1 to {_MOST_CANDIDATES}, got {group.count!r}"
            )
        if not (_whole(group.length) and 0 <= group.length <= _LONGEST):
            raise _nonsense(recipe, f"expected a length from 0 to {_LONGEST}, got {group.length!r}")
        if not (isinstance(group.magnitude, int | float) and 0 <= group.magnitude <= 60):
            raise _nonsense(recipe, f"expected a magnitude from 0 to 60, got {group.magnitude!r}")
        if group.length and not recipe.transforms:
            raise _nonsense(recipe, f"{group.length} steps asked for, but no transform is left")
        if not group.length and recipe.start is None and recipe.finish is None:
            raise _nonsense(recipe, "length 0 without start or finish is the plain image alone")
    if not recipe.groups:
        raise _nonsense(recipe, "expected at least one group of sub-policies")


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)


def _check_ends(recipe: Recipe) -> None:
    for end, step, known in (
        ("start", recipe.start, STARTS),
        ("finish", recipe.finish, _CROPS),
    ):
        if step is not None and step.transform not in known:
            raise _nonsense(
                recipe, f"expected the {end} to be one of {', '.join(known)}, got {step.transform}"
            )
    if recipe.image_size is not None and not 8 <= recipe.image_size <= _LARGEST_SIDE:
        raise _nonsense(
            recipe,
            f"expected an image size of at least 8 and at most {_LARGEST_SIDE}, got "
            f"{describe(recipe.image_size)}",
        )


def _nonsense(recipe: Recipe, why: str) -> RelookError:
    return RelookError(f"recipe {recipe.name!r}: {why}")


def _without(recipe: Recipe, name: str) -> Recipe:
    if name == "flip":
        return replace(
            recipe,
            start=_unflipped(recipe.start),
            finish=_unflipped(recipe.finish),
            transforms=tuple(t for t in recipe.transforms if t != "flip"),
        )
    if recipe.start is not None and recipe.start.transform == name:
        return replace(recipe, start=None)
    if recipe.finish is not None and recipe.finish.transform == name:
        return replace(recipe, finish=None)
    if name not in recipe.transforms:
        raise _nonsense(
            recipe,
            f"cannot leave out {name!r}; " + str(unknown_name("transform", name, _names(recipe))),
        )
    return replace(recipe, transforms=tuple(t for t in recipe.transforms if t != name))


def _unflipped(step: Step | None) -> Step | None:
    if step is None:
        return None
    return replace(step, transform=_WITHOUT_FLIP.get(step.transform, step.transform))


def _names(recipe: Recipe) -> list[str]:
    ends = [step.transform for step in (recipe.start, recipe.finish) if step is not None]
    return ["flip", *recipe.transforms, *ends]


_CIFAR = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "autocontrast",
    "solarize",
    "solarize_add",
    "posterize",
    "contrast",
    "brightness",
    "color",
    "sharpness",
    "cutout",
)

RECIPES: Mapping[str, Recipe] = by_name(
    (
        Recipe(
            "cifar",
            _CIFAR,
            (Group(500, 3, 45), Group(500, 3, 20), Group(100, 3, 0)),
            finish=Step("crop_flip", 4),
            image_size=32,
        ),
        Recipe(
            "imagenet",
            (*_CIFAR, "invert", "equalize"),
            (
                Group(300, 2, 45),
                Group(300, 2, 20),
                Group(100, 3, 10),
                Group(100, 1, 45),
                Group(100, 0, 0),
            ),
            start=Step("scale_crop_flip", 30),
            image_size=224,
        ),
        # Small grey pictures of signs and things: no colour, no mirror images.
        Recipe(
            "small",
            tuple(name for name in _CIFAR if name != "color"),
            (Group(150, 2, 20), Group(150, 2, 10), Group(99, 1, 0)),
            finish=Step("crop", 3),
            image_size=28,
        ),
    )
)
"""The built-in recipes by name."""


def get_recipe(recipe: Recipe | str | Path) -> Recipe:
    """Return a recipe by name, from a TOML file, or as it is."""
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Path) or str(recipe).endswith(".toml"):
        return load_recipe(Path(recipe))
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    return RECIPES[recipe]


def load_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise FileFormatError(f"{path}: expected a recipe of at most {_LARGEST_FILE} bytes")
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path}: cannot read the recipe: {error}") from None
    except (ValueError, RecursionError) as error:  # TOML's own, and integers without end
        raise FileFormatError(f"{path}: expected a TOML file: {error}") from None
    try:
        return _from_toml(content, path.stem)
    except FileFormatError:
        raise
    except RelookError as error:
        raise FileFormatError(f"{path}: {error}") from None


def _from_toml(content: dict[str, Any], stem: str) -> Recipe:
    known = ("name", "base", "transforms", "groups", "start", "finish", "image_size", "exclude")
    for key in content:
        if key not in known:
            raise unknown_name("key", key, known)
    base = content.get("base")
    fields: dict[str, Any] = {"name": _typed(content, "name", str, stem)}
    if "transforms" in content:
        fields["transforms"] = _names_in(content, "transforms")
    if "groups" in content:
        fields["groups"] = tuple(_group(entry) for entry in _typed(content, "groups", list, []))
    for end in ("start", "finish"):
        if end in content:
            fields[end] = _end(end, content[end])
    if "image_size" in content:
        fields["image_size"] = _typed(content, "image_size", int, None)
    if base is None:
        missing = {"transforms", "groups"} - set(fields)
        if missing:
            raise RelookError(f"expected {' and '.join(sorted(missing))}, or a base recipe")
        recipe = Recipe(**fields)
    else:
        name = _typed(content, "base", str, "")
        if name not in RECIPES:
            raise unknown_name("base recipe", name, RECIPES)
        recipe = replace(RECIPES[name], **fields)
    return recipe.without(_names_in(content, "exclude"))


def _typed(content: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = content.get(key, default)
    if key in content and (not isinstance(value, kind) or isinstance(value, bool)):
        raise RelookError(f"{key}: expected {kind.__name__}, got {value!r}")
    return value


def _names_in(content: dict[str, Any], key: str) -> tuple[str, ...]:
    names = _typed(content, key, list, [])
    for name in names:
        if not isinstance(name, str):
            raise RelookError(f"{key}: expected names of transforms, got {name!r}")
    return tuple(names)


def _group(entry: object) -> Group:
    if not isinstance(entry, dict) or set(entry) != {"count", "length", "magnitude"}:
        raise RelookError(f"groups: expected count, length and magnitude, got {entry!r}")
    return Group(**entry)


def _end(end: str, entry: object) -> Step:
    if not isinstance(entry, dict) or set(entry) != {"transform", "magnitude"}:
        raise RelookError(f"{end}: expected transform and magnitude, got {entry!r}")
    return Step(entry["transform"], entry["magnitude"])
