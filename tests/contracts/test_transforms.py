"""What every row of TRANSFORMS promises; a new row enrols itself."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.oracles.pillow_transforms import random_draws
from tests.support import refused
from torch import Tensor

from relook import RelookError
from relook.transforms import DRAWS, TRANSFORMS, Transform
from relook.transforms.table import load_form

every_transform = pytest.mark.parametrize("row", TRANSFORMS.values(), ids=TRANSFORMS)
every_shape = pytest.mark.parametrize(
    "shape", [(5, 3, 20, 20), (5, 1, 28, 28)], ids=["rgb", "grey"]
)

Parameters = dict[str, Tensor]


def noise(*shape: int) -> Tensor:
    # Not the whole range, so that stretching the contrast changes something.
    levels = np.random.default_rng(0).integers(20, 200, shape, dtype=np.uint8)
    return torch.from_numpy(levels)


def parameters(row: Transform, magnitudes: list[float], seed: int = 0) -> Parameters:
    """Values and random draws for a batch, one magnitude for each image."""
    values = [row.value(magnitude) for magnitude in magnitudes]
    if row.signed:
        values = [value * (-1) ** i for i, value in enumerate(values)]
    draws = random_draws(row, len(values), np.random.default_rng(seed))
    tensors = {name: torch.from_numpy(draw) for name, draw in draws.items()}
    return {"values": torch.tensor(values, dtype=torch.float64), **tensors}


def spread(count: int) -> list[float]:
    return [60 * i / (count - 1) for i in range(count)]


@every_transform
@every_shape
def test_makes_new_images_like_the_old_and_leaves_those_alone(
    row: Transform, shape: tuple[int, ...]
) -> None:
    images = noise(*shape)
    before = images.clone()
    given = parameters(row, spread(len(images)))
    kept = {name: tensor.clone() for name, tensor in given.items()}
    result = row.kernel(images, **given)
    assert (result.shape, result.dtype, result.device) == (shape, torch.uint8, images.device)
    result.fill_(7)
    assert torch.equal(images, before)
    assert all(torch.equal(given[name], kept[name]) for name in kept)


@every_transform
@pytest.mark.parametrize("side", [32, 60])
def test_a_batch_is_its_images_one_by_one(row: Transform, side: int) -> None:
    images = noise(23, 3, side, side)
    given = parameters(row, spread(len(images)))
    whole = row.kernel(images, **given)
    for i in range(len(images)):
        one = row.kernel(
            images[i : i + 1], **{name: tensor[i : i + 1] for name, tensor in given.items()}
        )
        assert torch.equal(one[0], whole[i]), f"image {i}"


@every_transform
def test_an_empty_batch_stays_empty(row: Transform) -> None:
    assert row.kernel(noise(0, 3, 12, 16), **parameters(row, [])).shape == (0, 3, 12, 16)


@every_transform
@every_shape
def test_is_the_identity_at_zero_where_the_row_says_so_and_only_there(
    row: Transform, shape: tuple[int, ...]
) -> None:
    count, channels, height, width = shape
    images = noise(count, channels, 3 * height, 3 * width)  # so that 1 % of the area is a pixel
    same = [
        torch.equal(row.kernel(images, **parameters(row, [0.0] * len(images), seed)), images)
        for seed in range(10)
    ]
    assert all(same) if row.identity_at_zero else not all(same)


@every_transform
def test_the_value_moves_with_the_magnitude_as_the_row_says(row: Transform) -> None:
    steps = np.diff([row.value(magnitude) for magnitude in np.linspace(0, 60, 601)])
    if row.trend == 0:
        assert not steps.any()
    else:
        assert (row.trend * steps >= 0).all()
        assert row.trend * steps.sum() > 0


@every_transform
def test_draws_are_ones_that_can_be_drawn(row: Transform) -> None:
    assert set(row.draws) <= set(DRAWS)
    assert row.name == row.kernel.__name__


@every_transform
def test_every_form_that_a_row_names_is_there(row: Transform) -> None:
    for form in (row.cpu, row.onnx, row.full_size):
        assert form is None or callable(load_form(form))


def test_the_table_needs_neither_numba_nor_onnx() -> None:
    code = (
        "import sys, relook.policy.views; "
        "assert not {'numba', 'llvmlite', 'onnx'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _channels_last(images: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)


def _every_second_pixel(images: Tensor) -> Tensor:
    n, c, h, w = images.shape
    wide = torch.zeros((n, c, 2 * h, 2 * w), dtype=torch.uint8)
    wide[:, :, ::2, 1::2] = images
    return wide[:, :, ::2, 1::2]


def _transposed_twice(images: Tensor) -> Tensor:
    return images.transpose(2, 3).contiguous().transpose(2, 3)


@every_transform
@pytest.mark.parametrize("layout", [_channels_last, _every_second_pixel, _transposed_twice])
def test_the_layout_in_memory_does_not_matter(
    row: Transform, layout: Callable[[Tensor], Tensor]
) -> None:
    images = noise(6, 3, 14, 14)
    strided = layout(images)
    assert torch.equal(strided, images)
    assert not strided.is_contiguous()
    given = parameters(row, spread(len(images)))
    assert torch.equal(row.kernel(strided, **given), row.kernel(images, **given))


@every_transform
def test_one_image_repeated_without_copies_is_welcome(row: Transform) -> None:
    image = noise(1, 1, 14, 14)
    given = parameters(row, spread(4))
    repeated = image.expand(4, 3, -1, -1)
    assert torch.equal(row.kernel(repeated, **given), row.kernel(repeated.contiguous(), **given))


@every_transform
@pytest.mark.parametrize("magnitude", [61.0, 1e4, 1e12, 1e300])
def test_magnitudes_beyond_all_use_do_no_harm(row: Transform, magnitude: float) -> None:
    images = noise(4, 3, 12, 12)
    result = row.kernel(images, **parameters(row, [magnitude] * 4))
    assert (result.shape, result.dtype) == (images.shape, torch.uint8)


GOOD = noise(2, 3, 12, 12)
BAD_IMAGES = {
    "not a tensor": (GOOD.numpy(), "expected a torch uint8 tensor.*got ndarray"),
    "float": (GOOD.float() / 255, r"expected uint8 images.*got torch\.float32"),
    "no batch": (GOOD[0], r"shape \[n, c, h, w\].*got \[3, 12, 12\]"),
    "channels last": (GOOD.permute(0, 2, 3, 1), r"c = 1 or 3, got \[2, 12, 12, 3\]"),
    "four channels": (noise(2, 4, 12, 12), r"c = 1 or 3, got \[2, 4, 12, 12\]"),
    "too small": (noise(2, 3, 12, 7), "at least 8×8 pixels, got 12×7"),
}


@every_transform
@pytest.mark.parametrize(("images", "message"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_says_what_is_wrong_with_images(row: Transform, images: Tensor, message: str) -> None:
    refused(f"^{row.name}: .*{message}", row.kernel, images, **parameters(row, [1.0, 2.0]))


BAD_PARAMETERS: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "wrong length": (lambda good: good.repeat(2), r"of shape \[2\].*got \[4\]"),
    "scalar": (lambda good: good[0], r"of shape \[2\].*got \[\]"),
    "float32": (lambda good: good.float(), r"float64 tensor \[2\], got torch\.float32"),
    "list": (lambda good: good.tolist(), r"float64 tensor \[2\], got list"),
    "not finite": (lambda good: good + float("nan"), r"expected finite .*got \[nan, nan\]"),
}


@every_transform
@pytest.mark.parametrize(("spoil", "message"), BAD_PARAMETERS.values(), ids=BAD_PARAMETERS)
def test_says_what_is_wrong_with_values_and_draws(
    row: Transform, spoil: Callable[[Tensor], object], message: str
) -> None:
    good = parameters(row, [1.0, 2.0])
    for name in good:
        with pytest.raises(RelookError, match=f"^{row.name}: .*{message}") as caught:
            row.kernel(GOOD, **{**good, name: spoil(good[name])})
        assert name in str(caught.value)


def test_odd_quarter_turns_need_square_images() -> None:
    row = TRANSFORMS["quarter_turn"]
    assert row.kernel(noise(2, 3, 12, 16), **parameters(row, [0.0, 2.0])).shape == (2, 3, 12, 16)
    with pytest.raises(RelookError, match=r"expected square images.*got 12×16"):
        row.kernel(noise(2, 3, 12, 16), **parameters(row, [2.0, 3.0]))


def test_a_row_cannot_be_changed() -> None:
    row = TRANSFORMS["rotate"]
    with pytest.raises(AttributeError):
        row.unit = "radians"  # type: ignore[misc]
    with pytest.raises(TypeError):
        TRANSFORMS["rotate"] = replace(row, unit="radians")  # type: ignore[index]
