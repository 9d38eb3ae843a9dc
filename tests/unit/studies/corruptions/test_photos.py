"""Photos larger than the input: corrupted whole, as strong as their plain views would be."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.unit.data.full_size_files import in_memory
from tests.unit.studies.brightness_model import ByBrightness, bright_and_dark

from relook.policy import Policy, Step, SubPolicy
from relook.studies.corruptions import corrupt_images, corrupt_photos, resized_photos
from relook.studies.robustness import Shift, robustness
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages, plain_views

SHAPES = ((40, 60), (90, 41), (64, 64), (50, 200))
SEED = 3


@pytest.fixture
def photos() -> FullImages:
    draws = np.random.default_rng(0)
    arrays = [draws.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    return in_memory(arrays, CentreCrop((32, 32), 0.875, 3, "bicubic", every=False))


def test_resizing_changes_no_plain_view(photos: FullImages) -> None:
    reduced = resized_photos(photos)
    assert reduced.shapes.min() == 36
    assert torch.equal(plain_views(reduced), plain_views(photos))
    assert len({*reduced.fingerprints, *photos.fingerprints}) == 2 * len(photos)


def test_what_changes_each_pixel_alone_is_the_same_before_and_after_the_crop(
    photos: FullImages,
) -> None:
    places = np.arange(5, 5 + len(photos))
    reduced = resized_photos(photos)
    corrupted = corrupt_photos(reduced, "brightness", 3, seed=SEED, indices=places)
    expected = corrupt_images(plain_views(photos), "brightness", 3, seed=SEED, indices=places)
    assert torch.equal(plain_views(corrupted), expected)
    assert (corrupted.shapes == reduced.shapes).all()


def test_blur_is_as_wide_as_on_the_plain_view(photos: FullImages) -> None:
    reduced, places = resized_photos(photos), np.arange(len(photos))
    corrupted = corrupt_photos(reduced, "defocus_blur", 5, seed=SEED, indices=places)
    alone = torch.from_numpy(reduced.levels(1)).permute(2, 0, 1)[None]
    found = torch.from_numpy(corrupted.levels(1)).permute(2, 0, 1)[None]
    blur = {"severity": 5, "seed": SEED, "indices": [1]}
    assert torch.equal(found, corrupt_images(alone, "defocus_blur", side=32, **blur))  # type: ignore[arg-type]
    assert not torch.equal(found, corrupt_images(alone, "defocus_blur", side=64, **blur))  # type: ignore[arg-type]


def test_the_study_cuts_its_views_from_corrupted_photos(photos: FullImages) -> None:
    predictor = ByBrightness()
    halves = bright_and_dark(20)
    twenty = photos[np.arange(20) % len(photos)]
    places = np.arange(100, 120)
    robustness(
        predictor,
        replace(halves, images=twenty),
        Policy((SubPolicy((Step("scale_crop_flip", 20),)),), recipe="imagenet"),
        recipe="imagenet",
        shift=Shift(["fog"], [2]),
        budgets=[1],
        methods=["plain"],
        indices=places,
        seed=SEED,
        batch=64,
    )
    whole = corrupt_photos(resized_photos(twenty), "fog", 2, seed=SEED, indices=places)
    passed = torch.cat(predictor.seen)
    views = [passed[i : i + 20] for i in range(0, len(passed), 20)]
    assert len(views) == 4  # plain and policy, clean and under fog
    assert any(torch.equal(view, plain_views(whole)) for view in views)
