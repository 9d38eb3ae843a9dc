"""Transforms of other libraries keep the promises of relook's own."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import own_rows, refused
from tests.unit.deploy.tta_cases import network, some_images
from torch import Tensor

import relook
from relook.adapters import from_albumentations, from_kornia, from_torchvision
from relook.testing import check_transform
from relook.transforms import TRANSFORMS


def test_torchvision() -> None:
    v2 = pytest.importorskip("torchvision.transforms.v2.functional")
    gamma = from_torchvision(lambda value: partial(v2.adjust_gamma, gamma=1 + value))
    blur = from_torchvision(
        lambda value: partial(v2.gaussian_blur, kernel_size=[5, 5], sigma=[value, value])
    )
    check_transform(gamma, value=lambda m: m / 30, identity_at_zero=True)
    check_transform(blur, value=lambda m: 0.1 + m / 30)
    images = some_images(3)
    found = gamma(images, torch.tensor([0.0, 1.0, 1.0]).double())
    assert torch.equal(found[1:], v2.adjust_gamma(images[1:], 2.0))


def test_albumentations() -> None:
    """By what it documents: called with `image=`, uint8 [h, w, c], it returns a record."""

    def make(value: float) -> Any:
        def transform(image: np.ndarray[Any, Any]) -> dict[str, Any]:
            assert image.dtype == np.uint8
            assert image.shape[2] in (1, 3)
            changed = np.clip(image[::-1].astype(int) + int(value), 0, 255).astype(np.uint8)
            return {"image": changed[..., 0] if changed.shape[2] == 1 else changed}

        return transform

    check_transform(from_albumentations(make))
    images = some_images(2)
    found = from_albumentations(make)(images, torch.tensor([0.0, 300.0]).double())
    assert torch.equal(found[0], images[0].flip(1))
    assert (found[1] == 255).all()


def test_kornia() -> None:
    """By what it documents: floats in 0 … 1, [n, c, h, w], in and out."""

    def make(value: float) -> Any:
        def transform(images: Tensor) -> Tensor:
            assert images.is_floating_point()
            assert 0 <= images.min() <= images.max() <= 1
            return images + value

        return transform

    check_transform(from_kornia(make), value=lambda m: m / 60, identity_at_zero=True)
    images = some_images(2)
    found = from_kornia(make)(images, torch.tensor([0.1, 2.0]).double())
    wanted = (images[0] + 25.5).clamp(max=255)
    assert (found[0] - wanted).abs().max() <= 0.5
    assert (found[1] == 255).all()


def test_the_libraries_themselves_where_they_are_installed() -> None:
    albumentations = pytest.importorskip("albumentations")
    kornia = pytest.importorskip("kornia")
    shift = from_albumentations(
        lambda value: albumentations.RandomBrightnessContrast((value, value), (0, 0), p=1)
    )
    sharp = from_kornia(lambda value: partial(kornia.enhance.sharpness, factor=value))
    check_transform(shift, value=lambda m: m / 60, identity_at_zero=True)
    check_transform(sharp, value=lambda m: m / 60)


def test_what_another_library_does_runs_in_a_tta_and_is_not_exported() -> None:
    invert = from_kornia(lambda value: lambda images: 1 - images)
    with own_rows(TRANSFORMS):
        relook.register_transform("other", invert)
        policy = relook.Policy((relook.SubPolicy((relook.Step("other", 1),)),))
        tta = relook.TTA(network(), policy, temperature=None)
        inverted = relook.TTA(network(), "plain", temperature=None).predict_proba(
            255 - some_images(4)
        )
        np.testing.assert_allclose(tta.predict_proba(some_images(4)), inverted, atol=1e-6)
        program = SimpleNamespace(is_compiling=lambda: True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch, "compiler", program)
            refused("cannot be exported: use relook.TTA", invert, some_images(1), torch.zeros(1))
