"""What every row of TRANSFORMS promises; a new row enrols itself."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor

from relook import RelookError
from relook.testing import check_transform, parameters
from relook.transforms import TRANSFORMS, Transform
from relook.transforms.table import load_form

every_transform = pytest.mark.parametrize("row", TRANSFORMS.values(), ids=TRANSFORMS)


def noise(*shape: int) -> Tensor:
    # Not the whole range, so that stretching the contrast changes something.
    levels = np.random.default_rng(0).integers(20, 200, shape, dtype=np.uint8)
    return torch.from_numpy(levels)


@every_transform
def test_keeps_its_promises(row: Transform) -> None:
    check_transform(row)


@every_transform
def test_has_its_kernels_name(row: Transform) -> None:
    assert row.name == row.kernel.__name__


@pytest.mark.parametrize("channels", [3, 1], ids=["rgb", "grey"])
@pytest.mark.parametrize(
    "row",
    [row for row in TRANSFORMS.values() if not row.identity_at_zero],
    ids=lambda row: row.name,
)
def test_is_not_the_identity_at_zero_where_the_row_does_not_say_so(
    row: Transform, channels: int
) -> None:
    images = noise(5, channels, 60, 60)
    assert not all(
        torch.equal(row.kernel(images, **parameters(row, [0.0] * len(images), seed)), images)
        for seed in range(10)
    )


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
