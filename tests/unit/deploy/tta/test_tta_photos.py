"""TTA of photos: views are cut from them as in the search, whatever they come as."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.support import refused
from tests.unit.deploy.photo_cases import PLAN, VIEWS, photo_policy, some_photos
from tests.unit.deploy.tta_cases import network, some_images

import relook
from relook.data.image_files import kept
from relook.transforms.full_images import FullImages


def test_photos_are_cut_as_in_the_search_whatever_they_come_as() -> None:
    tta, photos = relook.TTA(network(), photo_policy()), some_photos()
    wanted = tta(kept(FullImages.of(photos, PLAN))).numpy()
    as_tensors = [torch.from_numpy(one).permute(2, 0, 1) for one in photos]
    as_pictures = [Image.fromarray(one) for one in photos]
    for given in (
        photos,
        tuple(photos),
        as_tensors,
        as_pictures,
        [one / 255 for one in as_tensors],
    ):
        np.testing.assert_array_equal(tta(given).numpy(), wanted)
    assert np.allclose(tta.predict_proba(photos * 3), np.tile(wanted, (3, 1)), atol=1e-6)
    assert tta.uncertainty(photos).entropy.shape == (5,)
    batch = np.stack(some_photos(*[(45, 80)] * 3)).transpose(0, 3, 1, 2)
    for larger in (batch, torch.from_numpy(batch)):
        assert np.allclose(tta(larger).numpy()[0], wanted[0], atol=1e-6)


def test_images_of_the_input_s_size_are_taken_as_before_with_one_warning() -> None:
    tta = relook.TTA(network(), photo_policy())
    with pytest.warns(UserWarning, match="searched on photos"):
        found = tta(some_images(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tta(some_images(2))
        plain = replace(photo_policy(), subpolicies=VIEWS[:1], temperatures=(1.0,))
        relook.TTA(network(), plain)(some_images(2))  # the plain view is the image either way
        unmarked = photo_policy(replace(PLAN, full_size=False))
        before = relook.TTA(network(), unmarked)(some_images(2))
    assert torch.equal(found, before)


def test_a_policy_that_was_not_searched_on_photos_takes_them_in_a_list() -> None:
    unmarked, photos = photo_policy(replace(PLAN, full_size=False)), some_photos()
    wanted = relook.TTA(network(), photo_policy())(photos)
    assert torch.equal(relook.TTA(network(), unmarked, size=32)(photos), wanted)
    refused("expected size", relook.TTA(network(), replace(unmarked, preparation=None)), photos)
    batch = torch.zeros((2, 3, 45, 80), dtype=torch.uint8)
    refused("expected images of 32×32", relook.TTA(network(), unmarked, size=32), batch)


def test_what_is_no_photo_is_said() -> None:
    tta = relook.TTA(network(), photo_policy())
    grey = np.zeros((40, 50, 1), np.uint8)
    refused(r"photo 1: expected uint8 \[h, w, 3\]", tta, [some_photos()[0], grey])
    refused("photo 0: expected uint8", tta, [np.zeros((40, 50, 3))])
    refused("photo 0: it is too long and thin", tta, [np.zeros((1, 90_000_000, 3), np.uint8)[:, :]])
    refused("at least 1 image", tta, [])
