"""Views of full-size images are Pillow's own crop and resize, byte for byte."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.unit.data.full_size_files import in_memory

from relook.policy import Step, SubPolicy
from relook.policy.views import apply_subpolicy
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages, plain_views
from relook.transforms.resampling import CROP_SHARES, crop_box

SIDES = st.integers(8, 90)
SHARES = st.floats(0, 1)


def image(height: int, width: int, channels: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


def as_pillow(levels: np.ndarray) -> Image.Image:
    return Image.fromarray(levels if levels.shape[2] == 3 else levels[:, :, 0])


def one_view(images: FullImages, *steps: Step) -> np.ndarray:
    """The view `[h, w, c]` of the first image."""
    return (
        apply_subpolicy(SubPolicy(steps), images, np.arange(len(images)), 0, 0)[0]
        .permute(1, 2, 0)
        .numpy()
    )


@given(
    SIDES, SIDES, SIDES, SIDES, st.sampled_from([1, 3]), st.floats(0, 30), SHARES, SHARES,
    SHARES, SHARES, st.booleans(), st.sampled_from(["scale_crop_flip", "resized_crop_flip"]),
)  # fmt: skip
def test_a_scale_crop_is_cut_from_the_large_image(
    height: int, width: int, down: int, across: int, channels: int, magnitude: float,
    area: float, aspect: float, x: float, y: float, flip: bool, name: str,
) -> None:  # fmt: skip
    """Shrinking and enlarging, and each way round: Pillow chooses its order of passes by both."""
    levels = image(height, width, channels)
    images = in_memory([levels], CentreCrop((down, across), 0.875, channels))
    draws = {"area": area, "aspect": aspect, "x": x, "y": y, "flip": float(flip)}
    step = Step(name, magnitude, draws=draws)
    share = CROP_SHARES[name](np.float64(step.value), area)
    box = crop_box(width, height, float(share), aspect, x, y)
    edges = (box.left, box.top, box.left + box.width, box.top + box.height)
    expected = as_pillow(levels).crop(edges).resize((across, down), Image.Resampling.BICUBIC)
    if flip:
        expected = expected.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    made = one_view(images, step)
    np.testing.assert_array_equal(made, np.asarray(expected).reshape(made.shape))


@pytest.mark.parametrize(
    ("box", "size"),
    [((60, 20), (24, 40)), ((20, 60), (40, 24)), ((60, 60), (24, 24)), ((10, 10), (24, 24))],
    ids=["only the height shrinks", "only the width shrinks", "both shrink", "both grow"],
)
def test_both_orders_of_pillow(box: tuple[int, int], size: tuple[int, int]) -> None:
    levels = image(*box, 3)
    step = Step("scale_crop", 0, draws={"area": 1.0, "aspect": 0.5, "x": 0.0, "y": 0.0})
    found = crop_box(box[1], box[0], step.value + 0.01, 0.5, 0.0, 0.0)
    edges = (found.left, found.top, found.left + found.width, found.top + found.height)
    expected = as_pillow(levels).crop(edges).resize(size[::-1], Image.Resampling.BICUBIC)
    made = one_view(in_memory([levels], CentreCrop(size, 1.0, 3)), step)
    np.testing.assert_array_equal(made, np.asarray(expected))


@given(SIDES, SIDES, st.sampled_from([0.5, 0.875, 0.95, 1.0]))
def test_the_plain_view_is_the_centre_of_the_resized_image(h: int, w: int, crop: float) -> None:
    levels = image(h, w, 3)
    made = (
        plain_views(in_memory([levels], CentreCrop((24, 24), crop, 3, every=True)))[0]
        .permute(1, 2, 0)
        .numpy()
    )
    short = math.floor(24 / crop)
    size = (max(short, short * w // h), short) if w >= h else (short, max(short, short * h // w))
    whole = as_pillow(levels).resize(size, Image.Resampling.BICUBIC)
    left, top = round((whole.width - 24) / 2), round((whole.height - 24) / 2)
    np.testing.assert_array_equal(made, np.asarray(whole.crop((left, top, left + 24, top + 24))))


def test_the_steps_that_follow_see_the_view() -> None:
    images = in_memory([image(70, 90, 3, i) for i in range(3)], CentreCrop((24, 24), 0.875, 3))
    first = Step("scale_crop_flip", 12)
    both = SubPolicy((first, Step("rotate", 9), Step("cutout", 20)))
    indices = np.array([7, 8, 9])
    made = apply_subpolicy(both, images, indices, 5, 3)
    crop = apply_subpolicy(SubPolicy((first,)), images, indices, 5, 3)
    # The place of a step decides its draws, so the rest is applied behind an identity.
    rest = SubPolicy((Step("identity", 0), *both.steps[1:]))
    assert torch.equal(made, apply_subpolicy(rest, crop, indices, 5, 3))


def test_a_later_scale_crop_sees_the_batch() -> None:
    images = in_memory([image(70, 90, 3)], CentreCrop((24, 24), 0.875, 3))
    late = SubPolicy((Step("invert", 0), Step("scale_crop", 12)))
    made = apply_subpolicy(late, images, np.arange(1), 0, 0)
    assert torch.equal(made, apply_subpolicy(late, plain_views(images), np.arange(1), 0, 0))
