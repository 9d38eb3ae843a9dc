"""A crop keeps its area: a box that does not fit is drawn again, or takes the nearest aspect."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tests.unit.data.full_size_files import in_memory

from relook.evaluation.baselines import BASELINES
from relook.policy import Step, SubPolicy
from relook.policy.recipes import RECIPES
from relook.policy.views import applied_steps, freeze_subpolicy
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages
from relook.transforms.resampling import Box, crop_boxes

IMAGES = 4000
PHOTO = (500, 375)
SIZES = [PHOTO, (375, 500), (224, 224), (600, 375), (900, 300)]


def boxes(sub: SubPolicy, size: tuple[int, int], view: int = 0) -> list[Box]:
    """The boxes that a view cuts from images of one size (width, height)."""
    width, height = size
    images = torch.empty((1, 1, height, width), dtype=torch.uint8).expand(IMAGES, -1, -1, -1)
    (step,) = applied_steps(sub, images, np.arange(IMAGES), 0, view)
    return crop_boxes(step, width, height)


def areas(found: Sequence[Box], size: tuple[int, int]) -> NDArray[np.float64]:
    return np.array([box.width * box.height for box in found]) / math.prod(size)


def usual_crop(
    generator: np.random.Generator, size: tuple[int, int], scale: tuple[float, float]
) -> tuple[int, int]:
    """Width and height that torchvision's RandomResizedCrop.get_params draws."""
    width, height = size
    for _ in range(10):
        area = width * height * generator.uniform(*scale)
        ratio = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            return across, down
    if width / height < 3 / 4:
        return width, round(width / (3 / 4))
    if width / height > 4 / 3:
        return round(height * (4 / 3)), height
    return width, height


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("step", "scale"),
    [
        (Step("scale_crop_flip", 0), (0.99, 1.0)),
        (Step("scale_crop_flip", 7), (0.99 - 0.91 * 7 / 30, 1.0 - 0.91 * 7 / 30)),
        (Step("resized_crop_flip", 30), (0.08, 1.0)),
    ],
    ids=["nearly whole", "78 %", "any"],
)
def test_fresh_boxes_are_those_of_the_usual_random_resized_crop(
    step: Step, scale: tuple[float, float], size: tuple[int, int]
) -> None:
    generator = np.random.default_rng(1)
    wanted = np.array([usual_crop(generator, size, scale) for _ in range(IMAGES)])
    found = boxes(SubPolicy((step,)), size)
    for ours, usual in (
        (areas(found, size), wanted.prod(axis=1) / math.prod(size)),
        (np.array([b.width / b.height for b in found]), wanted[:, 0] / wanted[:, 1]),
    ):
        error = math.sqrt((ours.var() + usual.var()) / IMAGES)
        assert abs(ours.mean() - usual.mean()) <= 4 * error + 1e-3
    assert all(b.left + b.width <= size[0] and b.top + b.height <= size[1] for b in found)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("magnitude", [0, 3, 12, 30])
def test_fixed_boxes_keep_their_area(magnitude: float, size: tuple[int, int]) -> None:
    for view in range(100):
        sub = freeze_subpolicy(SubPolicy((Step("scale_crop", magnitude),)), 0, view)
        step = sub.steps[0]
        wanted = step.value + 0.01 * (step.fixed_draws or {})["area"]
        (found,) = areas(boxes(sub, size)[:1], size)
        assert found == pytest.approx(wanted, abs=1 / min(size))


def test_random_crops_draw_their_scale_for_each_image() -> None:
    (sub,) = BASELINES["cf"].policy(RECIPES["imagenet"], 1, draws="fresh")
    found = areas(boxes(sub, PHOTO), PHOTO)
    assert found.mean() == pytest.approx(0.433, abs=0.015)
    assert found.min() < 0.09
    assert found.max() > 0.98


def test_a_first_crop_is_fitted_to_the_original_and_a_later_one_to_the_view() -> None:
    originals = [np.zeros((30, 90, 3), np.uint8), np.zeros((90, 30, 3), np.uint8)] * 40
    images: FullImages = in_memory(originals, CentreCrop((24, 24), 0.875, 3))
    crop = Step("scale_crop", 3)
    first, later = applied_steps(SubPolicy((crop, crop)), images, np.arange(80), 0, 0)
    wide = [box for i in range(0, 80, 2) for box in crop_boxes(first, 90, 30)[i : i + 1]]
    assert {(box.width, box.height) for box in wide} == {
        (40, 30)
    }  # none of 90 % has an aspect ≤ 4/3
    assert np.median(later.values + 0.01 * later.draws["area"]) < 1
