from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import refused

from relook import RelookError, Step
from relook.policy.pool import sample_pool
from relook.policy.recipes import (
    RECIPES,
    Group,
    Recipe,
    get_recipe,
    load_recipe,
    recipe_for,
    variants,
)

XRAY = """
name = "x-ray"
image_size = 64
transforms = ["identity", "rotate", "contrast"]
finish = { transform = "crop", magnitude = 6 }

[[groups]]
count = 40
length = 2
magnitude = 15
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("shape", "name", "why"),
    [
        ((3, 224, 224), "imagenet", "photos for a 224-pixel model"),
        ((1, 97, 128), "imagenet", "photos for a 97-pixel model"),
        ((3, 96, 96), "cifar", "colour images of 96 pixels"),
        ((3, 24, 32), "cifar", "colour images of 24 pixels"),
        ((1, 96, 96), "cifar", "grey images of 96 pixels"),
        ((1, 64, 64), "small", "grey images of 64 pixels"),
        ((1, 8, 8), "small", "grey images of 8 pixels"),
        ((3, 16, 16), "small", "colour images of 16 pixels"),
    ],
)
def test_the_images_choose_a_recipe(shape: tuple[int, int, int], name: str, why: str) -> None:
    assert recipe_for(*shape) == (RECIPES[name], why)


def test_a_recipe_can_be_written_in_toml(tmp_path: Path) -> None:
    recipe = get_recipe(str(write(tmp_path, XRAY)))
    assert recipe == Recipe(
        "x-ray",
        ("identity", "rotate", "contrast"),
        (Group(40, 2, 15),),
        finish=Step("crop", 6),
        image_size=64,
    )


def test_a_recipe_can_start_from_a_built_in_one(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, 'base = "cifar"\nexclude = ["flip", "cutout"]'))
    assert recipe.name == "recipe"
    assert recipe.finish == Step("crop", 4)
    assert recipe.groups == RECIPES["cifar"].groups
    assert "cutout" not in recipe.transforms


def test_a_start_of_its_own_holds_for_the_groups_of_a_built_in_recipe(tmp_path: Path) -> None:
    start = 'base = "imagenet"\nstart = { transform = "scale_crop", magnitude = 8 }'
    recipe = load_recipe(write(tmp_path, start))
    assert {group.start for group in recipe.groups} == {None}
    pool = sample_pool(recipe, 100, plain=False)
    assert max(sub.steps[0].magnitude for sub in pool) <= 8


def test_transforms_can_be_left_out() -> None:
    recipe = RECIPES["imagenet"].without(["cutout", " invert", "flip"])
    assert not {"cutout", "invert"} & set(recipe.transforms)
    assert recipe.start == Step("scale_crop", 30)
    assert RECIPES["cifar"].without(["crop_flip"]).finish is None
    started = Recipe("own", ("rotate",), (Group(9, 1, 5, start=5),), start=Step("scale_crop", 9))
    assert started.without(["scale_crop"]).groups == (Group(9, 1, 5),)
    refused("did you mean 'cutout'", RECIPES["cifar"].without, ["cutut"])


def test_only_what_nobody_chose_is_open_to_change() -> None:
    cifar = RECIPES["cifar"]
    unflipped = cifar.without(["flip", "rotate"])
    assert {one.finish for one in variants(cifar)} == {
        Step(f"{border}crop{flip}", 4) for border in ("", "reflect_") for flip in ("", "_flip")
    }
    assert [one.finish for one in variants(unflipped)] == [Step("crop", 4), Step("reflect_crop", 4)]
    assert {"rotate"} & {name for one in variants(unflipped) for name in one.transforms} == set()
    assert [one.start for one in variants(RECIPES["imagenet"])] == [
        Step("scale_crop_flip", 30),
        Step("scale_crop", 30),
    ]
    for own in (
        replace(cifar, name="own"),
        replace(cifar, finish=Step("crop_flip", 2)),
        replace(cifar, groups=(Group(9, 1, 5),)),
    ):
        assert variants(own) == (own,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("transforms = [", "expected a TOML file"),
        ("colour = 1", "unknown key 'colour'"),
        ('transforms = ["rotate"]', "expected groups, or a base recipe"),
        ('base = "cifr"', "did you mean 'cifar'"),
        ('base = "recipe.toml"', "unknown base recipe"),
        ('base = "cifar"\nname = "a\\nb"', "printable characters"),
        ('base = "cifar"\nimage_size = "big"', 'image_size: expected a whole number, got "big"'),
        ('base = "cifar"\ntransforms = ["rotat"]', "did you mean 'rotate'"),
        (
            'base = "cifar"\ntransforms = ["dim"]',
            "'dim' is not registered: for one of your own, import the module that registers it",
        ),
        ('base = "cifar"\ntransforms = ["rotate", "rotate"]', "listed twice"),
        ('base = "cifar"\ntransforms = ["crop"]', "start or the finish"),
        ('base = "cifar"\ntransforms = []', "the recipe has no transforms"),
        (
            'base = "cifar"\ntransforms = [["rotate"]]',
            r"transforms\[0\]: expected a text, got a list",
        ),
        ('base = "cifar"\nexclude = [3]', r"exclude\[0\]: expected a text, got 3"),
        ('base = ["cifar"]', "base: expected a text, got a list of 1"),
        (
            'base = "cifar"\nfinish = {transform = ["crop"], magnitude = 3}',
            "finish.transform: expected a",
        ),
        ('base = "cifar"\ngroups = []', "at least one group"),
        (
            'base = "cifar"\nfinish = {transform = "rotate", magnitude = 3}',
            "expected the finish to be one of crop, crop_flip, reflect_crop, reflect_crop_flip",
        ),
        (
            'base = "cifar"\nfinish = 3',
            "finish: expected an object with transform, magnitude, got 3",
        ),
        ('base = "cifar"\nimage_size = 2', "at least 8"),
        *(
            (f'base = "{base}"\ngroups = [{{{group}}}]', message)
            for base, group, message in [
                ("cifar", "count = 3", r'groups\[0\]: expected the key "length", got none'),
                ("cifar", "count = 0, length = 1, magnitude = 1", "a count from 1"),
                ("cifar", "count = 1, length = 1, magnitude = 1e9", "a magnitude from 0 to 60"),
                ("cifar", "count = 1, length = 99, magnitude = 1", "expected a length from 0"),
                (
                    "cifar",
                    "count = 1, length = 1, magnitude = 1, start = 3",
                    "the recipe has no start",
                ),
                ("imagenet", "count = 1, length = 1, magnitude = 1, start = 61", "from 0 to 60"),
            ]
        ),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(RelookError, match=expected) as caught:
        load_recipe(write(tmp_path, text))
    assert "recipe.toml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_recipe_file_is_one_line(tmp_path: Path) -> None:
    refused("expected a recipe, got nothing", get_recipe, tmp_path / "none.toml")


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_file_gives_a_recipe_or_a_relook_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("recipes") / "some.toml"
    path.write_bytes(content)
    with pytest.raises(RelookError):
        load_recipe(path)
