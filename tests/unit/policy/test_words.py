"""Sub-policies in words."""

import pytest
import torch
from tests.support import own_rows

from relook.policy import Policy, Step, SubPolicy
from relook.policy.recipes import RECIPES
from relook.policy.views import freeze_subpolicy, make_views
from relook.transforms import TRANSFORMS
from relook.transforms.table import register_transform

BOX = {"area": 0.5, "aspect": 0.5, "x": 0.27, "y": 0.35}


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step("scale_crop_flip", 26, draws=BOX | {"flip": 1}), "crop of 21 % of the area at "
         "(0.27, 0.35), mirrored"),
        (Step("scale_crop", 26, draws=BOX), "crop of 21 % of the area at (0.27, 0.35)"),
        (Step("resized_crop", 30, draws=BOX), "crop of 54 % of the area at (0.27, 0.35)"),
        (Step("zoom", 12, draws={"x": 0, "y": 1}), "crop of 64 % of the area at (0.00, 1.00)"),
        (Step("scale_crop_flip", 26), "random crop of 20 % of the area, mirrored or not"),
        (Step("resized_crop", 30), "random crop of 8 to 100 % of the area"),
        (Step("crop_flip", 4), "random shift by up to 4 px, mirrored or not"),
        (Step("crop", 3, draws={"x": 0.5, "y": 0.5}), "no change"),
        (Step("crop_flip", 3, draws={"x": 0.5, "y": 0.5, "flip": 1}), "mirrored"),
        (Step("reflect_crop", 3, draws={"x": 0, "y": 0.5}), "shift 3 px right, edges reflected"),
        (Step("flip", 0), "mirrored"),
        (Step("quarter_turn", 3), "turned left by 270°"),
        (Step("rotate", 9, draws={"sign": -1}), "rotate −12°"),
        (Step("rotate", 9), "rotate ±12°"),
        (Step("translate_y", 20, draws={"sign": 1}), "translate_y +30 % of the height"),
        (Step("shear_y", 6, draws={"sign": 1, "edge": 1}), "shear_y +0.1, right edge kept"),
        (Step("cutout", 15, draws={"x": 0.1, "y": 0.9}), "cutout 25 % of the width at "
         "(0.10, 0.90)"),
        (Step("contrast", 15, -1), "contrast × 0.6"),
        (Step("solarize", 15), "solarize from grey level 192"),
        (Step("posterize", 3), "posterize to 7 bits"),
        (Step("autocontrast", 0), "autocontrast 0 % cut off"),
        (Step("solarize", 0), "no change"),
        (Step("identity", 30), "no change"),
        (Step("equalize", 30), "equalize"),
    ],
)  # fmt: skip
def test_a_step_is_told_in_its_own_units(step: Step, text: str) -> None:
    assert str(step) == text


def test_steps_that_do_nothing_are_not_listed() -> None:
    shift = Step("crop", 3, draws={"x": 0.0, "y": 0.9})
    found = SubPolicy((Step("identity", 4), Step("solarize", 0)), shift)
    assert str(found) == "shift 3 px right, 3 px up"
    assert str(
        SubPolicy((Step("identity", 4),), Step("crop", 0, draws=dict(shift.draws or ())))
    ) == ("plain image")


@pytest.mark.parametrize("place", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_a_shift_goes_where_it_says(place: float) -> None:
    image = torch.zeros(1, 1, 32, 32, dtype=torch.uint8)
    image[0, 0, 16, 16] = 255
    sub = SubPolicy((Step("crop", 4, draws={"x": place, "y": 1 - place}),))
    ((_, _, row, column),) = make_views(sub, image, seed=0).nonzero().tolist()
    moves = [
        f"{abs(by)} px {after if by > 0 else before}"
        for by, before, after in ((column - 16, "left", "right"), (row - 16, "up", "down"))
        if by
    ]
    assert str(sub) == (f"shift {', '.join(moves)}" if moves else "plain image")


def test_a_transform_of_ones_own_has_its_name_and_value() -> None:
    with own_rows(TRANSFORMS):
        register_transform("mine", lambda images, values, **_: images, draws=("sign", "area"))
        step = Step("mine", 2.5, draws={"sign": -1, "area": 0.5})
        assert str(step) == "mine −2.5, area 0.50"


@pytest.mark.parametrize("name", ["cifar", "imagenet", "small"])
def test_quasi_random_views_fit_a_narrow_terminal(name: str) -> None:
    policy = Policy.preset("crops", 20, recipe=name)
    assert max(map(len, str(policy).splitlines())) < 60
    finish = RECIPES[name].finish or RECIPES[name].start
    assert finish is not None
    fresh = SubPolicy((finish,))
    assert "random" in str(fresh)
    assert "random" not in str(freeze_subpolicy(fresh, 0, 0))
