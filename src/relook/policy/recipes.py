"""Recipes: the prior over sub-policies that a pool is drawn from, as plain data.

A recipe is one of RECIPES or comes from a user's TOML file (docs/howto/recipes.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.foundation.registry import by_name
from relook.io.files import describe, one_line, read_toml
from relook.io.records import convert
from relook.policy import Step
from relook.transforms import TRANSFORMS
from relook.transforms.resampling import CROP_SHARES

_CROPS = ("crop", "crop_flip", "reflect_crop", "reflect_crop_flip")
STARTS = tuple(CROP_SHARES)
"""The crops that a sub-policy may begin with; those of full-size images see the original."""

_WITHOUT_FLIP = {name: name.removesuffix("_flip") for name in (*STARTS, *_CROPS)}
_MOST_CANDIDATES = 1_000_000
_LONGEST = 16
_LARGEST_SIDE = 100_000

AUTO = "auto"
"""Stands for the recipe that fits the images (`recipe_for`)."""

# Images of more than _PHOTO pixels are photos; below _TINY, or grey and up to _GREY, small.
_PHOTO, _GREY, _TINY = 96, 64, 24


@dataclass(frozen=True)
class Group:
    """`count` sub-policies of `length` steps, each magnitude uniform on [0, `magnitude`].

    `start` is the largest magnitude of the recipe's start here; None: that of the start itself.
    """

    count: int
    length: int
    magnitude: float
    start: float | None = None


@dataclass(frozen=True)
class Recipe:
    """A prior over sub-policies: groups of random steps between a start and a finish.

    `start` is a crop whose magnitude is drawn from [0, its magnitude], or up to a group's `start`;
    `finish` is the crop that ends each sub-policy. `image_size` is the side in pixels of the images
    that the recipe is meant for.
    """

    name: str
    transforms: tuple[str, ...]
    groups: tuple[Group, ...]
    start: Step | None = None
    finish: Step | None = None
    image_size: int | None = None

    def __post_init__(self) -> None:
        problem = next(_problems(self), None)
        if problem is not None:
            raise RelookError(f"recipe {self.name!r}: {problem}")

    def without(self, names: Iterable[str]) -> Recipe:
        """Return the recipe without some transforms; without `flip` it makes no mirror images."""
        recipe = self
        for name in names:
            recipe = _without(recipe, name.strip())
        return recipe

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON-able data, for run records and fingerprints."""
        return asdict(self)


def _problems(recipe: Recipe) -> Iterator[str]:
    """Yield what is wrong with a recipe."""
    if not recipe.name.isprintable() or not 0 < len(recipe.name) <= 200:
        yield "expected a name of up to 200 printable characters"
    for name in recipe.transforms:
        if name not in TRANSFORMS:
            yield (
                f"the transform {name!r} is not registered: {_hint(name)}for one of your own, "
                "import the module that registers it; for the command line, install its package"
            )
        if name in STARTS + _CROPS:
            yield f"{name} can only be the start or the finish"
    if len(set(recipe.transforms)) != len(recipe.transforms):
        yield "a transform is listed twice"
    for group in recipe.groups:
        yield from _problems_of_group(recipe, group)
    if not recipe.groups:
        yield "expected at least one group of sub-policies"
    for end, step, known in (("start", recipe.start, STARTS), ("finish", recipe.finish, _CROPS)):
        if step is not None and step.transform not in known:
            yield f"expected the {end} to be one of {', '.join(known)}, got {step.transform}"
    if recipe.image_size is not None and not 8 <= recipe.image_size <= _LARGEST_SIDE:
        size = describe(recipe.image_size)
        yield f"expected an image size of at least 8 and at most {_LARGEST_SIDE}, got {size}"


def _hint(name: str) -> str:
    near = get_close_matches(name, TRANSFORMS, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _problems_of_group(recipe: Recipe, group: Group) -> Iterator[str]:
    if not 0 < group.count <= _MOST_CANDIDATES:
        yield f"expected a count from 1 to {_MOST_CANDIDATES}, got {group.count!r}"
    if not 0 <= group.length <= _LONGEST:
        yield f"expected a length from 0 to {_LONGEST}, got {group.length!r}"
    for magnitude in (group.magnitude, group.start or 0.0):
        if not 0 <= magnitude <= 60:
            yield f"expected a magnitude from 0 to 60, got {magnitude!r}"
    if group.start is not None and recipe.start is None:
        yield "a group has a magnitude for the start, but the recipe has no start"
    if group.length and not recipe.transforms:
        yield f"a group has {group.length} steps, but the recipe has no transforms"
    if not group.length and recipe.start is None and recipe.finish is None:
        yield "length 0 without start or finish is only the plain image"


def _without(recipe: Recipe, name: str) -> Recipe:
    if name == "flip":
        return replace(
            recipe,
            start=_unflipped(recipe.start),
            finish=_unflipped(recipe.finish),
            transforms=tuple(t for t in recipe.transforms if t != "flip"),
        )
    if recipe.start is not None and recipe.start.transform == name:
        return replace(recipe, start=None, groups=_without_start(recipe.groups))
    if recipe.finish is not None and recipe.finish.transform == name:
        return replace(recipe, finish=None)
    if name not in recipe.transforms:
        ends = [step.transform for step in (recipe.start, recipe.finish) if step is not None]
        known = unknown_name("transform", name, ["flip", *recipe.transforms, *ends])
        raise RelookError(f"recipe {recipe.name!r}: cannot leave out {name!r}; {known}")
    return replace(recipe, transforms=tuple(t for t in recipe.transforms if t != name))


def _without_start(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """Return groups without a start's magnitude of their own."""
    return tuple(replace(group, start=None) for group in groups)


def _unflipped(step: Step | None) -> Step | None:
    if step is None:
        return None
    return replace(step, transform=_WITHOUT_FLIP.get(step.transform, step.transform))


_CIFAR = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "autocontrast"),
    *("solarize", "solarize_add", "posterize", "contrast", "brightness", "color", "sharpness"),
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
                Group(300, 2, 45, start=45),
                Group(300, 2, 20, start=20),
                Group(100, 3, 10, start=10),
                Group(100, 1, 45, start=45),
                Group(100, 0, 0),
            ),
            start=Step("scale_crop_flip", 30),
            image_size=224,
        ),
        # Small grey pictures of characters and objects: no colour, no mirror images.
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


@dataclass(frozen=True)
class Change:
    """Another way to crop or mirror: `apply` returns the changed recipe, or the same if it cannot.

    It is taken if it is better than the recipe by more than `threshold` standard errors.
    """

    description: str
    apply: Callable[[Recipe], Recipe]
    threshold: float


def _reflected(recipe: Recipe) -> Recipe:
    if recipe.finish is None or recipe.finish.transform not in ("crop", "crop_flip"):
        return recipe
    return replace(
        recipe, finish=replace(recipe.finish, transform=f"reflect_{recipe.finish.transform}")
    )


CHANGES = (
    # Mirror images go if they do harm; an unusual border has to prove better.
    Change("no mirror images", lambda recipe: recipe.without(["flip"]), 1.0),
    Change("crops with mirrored borders", _reflected, 2.0),
)
"""The changes that predictions of a few views may make to a built-in recipe, in turn."""


def variants(recipe: Recipe) -> tuple[Recipe, ...]:
    """Return the recipe and all that CHANGES make of it; a user's recipe is not changed."""
    found, base = [recipe], RECIPES.get(recipe.name)
    if base is None or replace(recipe, transforms=base.transforms) not in (
        base,
        base.without(["flip"]),
    ):
        return (recipe,)
    for change in CHANGES:
        found += [change.apply(each) for each in found]
    return tuple(dict.fromkeys(found))


def get_recipe(recipe: Recipe | str | Path) -> Recipe:
    """Return a recipe by name, from a TOML file, or as it is."""
    if isinstance(recipe, Recipe):
        return recipe
    if isinstance(recipe, Path) or str(recipe).endswith(".toml"):
        return load_recipe(Path(recipe))
    if recipe not in RECIPES:
        raise unknown_name("recipe", recipe, RECIPES)
    return RECIPES[recipe]


def recipe_for(channels: int, height: int, width: int) -> tuple[Recipe, str]:
    """Return the recipe for images of a model's input size, and the reason for it."""
    side, kind = min(height, width), "grey" if channels == 1 else "colour"
    if side > _PHOTO:
        return RECIPES["imagenet"], f"photos for a {side}-pixel model"
    small = side < _TINY or (channels == 1 and side <= _GREY)
    return RECIPES["small" if small else "cifar"], f"{kind} images of {side} pixels"


def load_recipe(path: Path) -> Recipe:
    """Read a recipe from a TOML file."""
    where = one_line(str(path))
    file = convert(read_toml(path, what="a recipe"), _RecipeFile, where)
    try:
        return _from_file(file, path.stem)
    except RelookError as error:
        raise FileFormatError(f"{where}: {error}") from None


@dataclass(frozen=True)
class _CropStep:
    """A start or a finish in a file."""

    transform: str
    magnitude: float


@dataclass(frozen=True)
class _RecipeFile:
    """A recipe's file; fields that it leaves out come from the base recipe."""

    name: str | None = None
    base: str | None = None
    transforms: tuple[str, ...] | None = None
    groups: tuple[Group, ...] | None = None
    start: _CropStep | None = None
    finish: _CropStep | None = None
    image_size: int | None = None
    exclude: tuple[str, ...] = ()


def _from_file(file: _RecipeFile, stem: str) -> Recipe:
    fields: dict[str, Any] = {
        "name": stem if file.name is None else file.name,
        "transforms": file.transforms,
        "groups": file.groups,
        "start": file.start and Step(file.start.transform, file.start.magnitude),
        "finish": file.finish and Step(file.finish.transform, file.finish.magnitude),
        "image_size": file.image_size,
    }
    given = {key: value for key, value in fields.items() if value is not None}
    if file.base is None:
        missing = {"transforms", "groups"} - set(given)
        if missing:
            raise RelookError(f"expected {' and '.join(sorted(missing))}, or a base recipe")
        recipe = Recipe(**given)
    elif file.base in RECIPES:
        base = RECIPES[file.base]
        if file.start is not None:  # the magnitudes in the base's groups are for its own start
            base = replace(base, groups=_without_start(base.groups))
        recipe = replace(base, **given)
    else:
        raise unknown_name("base recipe", file.base, RECIPES)
    return recipe.without(file.exclude)
