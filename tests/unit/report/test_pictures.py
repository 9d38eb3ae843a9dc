from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from tests.support import refused

from relook.policy import Policy, Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import RECIPES
from relook.policy.views import make_views
from relook.report.pictures import (
    GridRow,
    builtin_picture,
    draw_grid,
    policy_picture,
    policy_views,
    read_picture,
    to_picture,
    transforms_picture,
)


def holds(sheet: Image.Image, part: Image.Image) -> bool:
    """Whether the sheet shows the part, pixel for pixel, somewhere."""
    big, small = np.asarray(sheet), np.asarray(part.convert("RGB"))
    h, w = small.shape[:2]
    corners = np.argwhere((big[: 1 - h or None, : 1 - w or None] == small[0, 0]).all(-1))
    return any(np.array_equal(big[y : y + h, x : x + w], small) for y, x in corners)


def test_the_transforms_picture_shows_what_pillow_makes() -> None:
    image = builtin_picture(96)
    assert (image.shape, image.dtype) == ((3, 96, 96), torch.uint8)
    assert image.float().std() > 40
    sheet = transforms_picture(image, ["rotate", "invert", "brightness"], [0, 15])
    photograph = to_picture(image)
    assert holds(sheet, photograph)
    assert holds(sheet, ImageOps.invert(photograph))
    assert holds(sheet, ImageEnhance.Brightness(photograph).enhance(0.6))
    assert holds(sheet, ImageEnhance.Brightness(photograph).enhance(1.4))


def test_the_default_picture_has_all_transforms_of_the_paper() -> None:
    signed = 4
    rows = len(RECIPES["imagenet"].transforms) + 1 + signed
    assert transforms_picture(builtin_picture(96)).height > 96 * rows


def test_pictures_are_the_same_every_time() -> None:
    image = builtin_picture(64)
    names = ["cutout", "shear_y", "scale_crop_flip"]
    assert transforms_picture(image, names) == transforms_picture(image, names)


def test_an_unknown_transform_is_named() -> None:
    refused("did you mean 'rotate'", transforms_picture, builtin_picture(32), ["rotat"])
    refused("at least one row", transforms_picture, builtin_picture(32), [])


def test_a_policy_picture_shows_each_view_of_each_image() -> None:
    images = torch.stack([builtin_picture(96), builtin_picture(96).flip(2)])
    turned = SubPolicy((Step("rotate", 20, draws={"sign": 1}),))
    policy = Policy((turned, SubPolicy(), turned, SubPolicy((Step("invert", 0),))))
    sheet = policy_picture(policy, images)
    for subpolicy in set(policy):
        for view in make_views(subpolicy, images, seed=0):
            assert holds(sheet, to_picture(view))


def test_small_grey_images_are_enlarged_by_whole_pixels() -> None:
    images = builtin_picture(28)[:1][None]
    sheet = policy_picture(Policy((SubPolicy(),)), images)
    assert holds(sheet, to_picture(images[0]).resize((84, 84), Image.Resampling.NEAREST))


def test_long_policies_are_drawn_in_columns() -> None:
    policy = Policy(sample_pool("cifar", 40, seed=0))
    sheet = policy_picture(policy, builtin_picture(32)[None])
    assert 0.4 < sheet.width / sheet.height < 2.5


def test_fresh_views_belong_to_their_place_and_image() -> None:
    image = builtin_picture(32)[None]
    fresh = SubPolicy((Step("crop_flip", 8),))
    policy = Policy((SubPolicy(), fresh, fresh), seed=5)
    (_, _, plain), (_, count, view) = policy_views(policy, image, [77])
    assert count == 2
    assert torch.equal(plain, image)
    assert torch.equal(view, make_views(fresh, image, seed=5, view=1, first_index=77))


def test_a_grid_has_room_for_text_and_pictures() -> None:
    cell = Image.new("RGB", (100, 50), (255, 0, 0))
    row = GridRow("a title", ["a line"], [cell, None, cell], ["one", "", "two"])
    sheet = draw_grid([row], heads=["1", "2", "3"], corner="corner")
    red = (np.asarray(sheet) == (255, 0, 0)).all(-1)
    assert red.sum() == 2 * 100 * 50
    refused("at least one row", draw_grid, [])


def test_reading_turns_upright_and_shrinks(tmp_path: Path) -> None:
    wide = Image.new("RGB", (80, 40), (0, 0, 255))
    exif = wide.getexif()
    exif[0x0112] = 6  # the camera was held sideways
    wide.save(tmp_path / "photo.png", exif=exif)
    assert read_picture(tmp_path / "photo.png").shape == (3, 80, 40)
    assert read_picture(tmp_path / "photo.png", 20).shape == (3, 20, 10)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n" + b"\0" * 30, b"text"])
def test_a_bad_image_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.png").write_bytes(content)
    refused("expected an image file", read_picture, tmp_path / "bad.png")


def test_a_missing_or_huge_image_is_one_line(tmp_path: Path) -> None:
    refused("no such file", read_picture, tmp_path / "none.png")
    refused("expected an image file", read_picture, tmp_path)
    Image.new("1", (9000, 9000)).save(tmp_path / "huge.png")
    refused(
        r"9000×9000, more than the allowed 80,000,000 pixels", read_picture, tmp_path / "huge.png"
    )
