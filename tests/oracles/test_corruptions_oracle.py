"""Corruptions against Pillow, SciPy and their formulas."""

import colorsys
import io

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage, stats
from tests.unit.studies.corruptions.photographs import photographs

from relook.studies.corruptions import CORRUPTIONS, corrupt_images
from relook.studies.corruptions.filters import convolve, smear, smooth, zoomed
from relook.studies.corruptions.kernels import Draws, disc

DRAWS = Draws(1, 2, 3, 4)


def picture(levels: NDArray[np.uint8]) -> Image.Image:
    return Image.fromarray(levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0).copy())


def layer(height: int = 30, width: int = 26) -> NDArray[np.float64]:
    return np.random.default_rng(0).random((2, height, width))


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize(("side", "quality"), [(32, (80, 40)), (224, (25, 7))])
def test_jpeg_is_pillows(grey: bool, side: int, quality: tuple[int, int]) -> None:
    images = photographs(side, 4 if side == 32 else 1)[:1, : 1 if grey else 3].contiguous()
    for severity, number in zip((1, 5), quality, strict=True):
        file = io.BytesIO()
        picture(images[0].numpy()).save(file, "JPEG", quality=number)
        expected = np.asarray(Image.open(file))
        found = picture(corrupt_images(images, "jpeg_compression", severity)[0].numpy())
        np.testing.assert_array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("grey", [False, True])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (32, 48)])
def test_pixelate_is_pillows_box(grey: bool, height: int, width: int) -> None:
    images = photographs(64)[:1, : 1 if grey else 3, :height, :width].contiguous()
    for severity, share in ((1, 0.95), (5, 0.65)):
        small = picture(images[0].numpy()).resize(
            (int(width * share), int(height * share)), Image.Resampling.BOX
        )
        expected = np.asarray(small.resize((width, height), Image.Resampling.BOX))
        found = picture(corrupt_images(images, "pixelate", severity)[0].numpy())
        np.testing.assert_array_equal(np.asarray(found), expected)


def test_brightness_raises_the_value_of_hsv() -> None:
    images = photographs(32)[:1]
    images[0, :, 0, 0] = 0
    found = corrupt_images(images, "brightness", 4)[0].numpy()
    for y, x in ((0, 0), (3, 4), (20, 9), (31, 31)):
        h, s, v = colorsys.rgb_to_hsv(*(images[0, :, y, x].numpy() / 255))
        expected = 255 * np.array(colorsys.hsv_to_rgb(h, s, min(1.0, v + 0.2)))
        np.testing.assert_allclose(found[:, y, x], expected, atol=0.51)


def test_contrast_keeps_the_mean_and_a_share_of_the_deviation() -> None:
    images = photographs(32)[:4]
    found = corrupt_images(images, "contrast", 3).double()
    clean = images.double()
    expected = 0.4 * (clean - clean.mean((2, 3), keepdim=True)) + clean.mean((2, 3), keepdim=True)
    assert float((found - expected).abs().max()) <= 0.51


def test_gaussian_noise_has_its_deviation() -> None:
    grey = torch.full((4, 3, 64, 64), 128, dtype=torch.uint8)
    row = CORRUPTIONS["gaussian_noise"]
    (deviation,) = row.parameters(1, 64)
    noise = (corrupt_images(grey, "gaussian_noise", 1).double() - 128) / 255
    assert float(noise.mean()) == pytest.approx(0, abs=3 * deviation / np.sqrt(noise.numel()))
    assert float(noise.std()) == pytest.approx(deviation, rel=0.02)
    assert stats.kstest(DRAWS.normal(0, 20_000), "norm").pvalue > 1e-3


def test_impulse_noise_takes_its_share_half_black_half_white() -> None:
    grey = torch.full((4, 3, 32, 32), 128, dtype=torch.uint8)
    found = corrupt_images(grey, "impulse_noise", 5)
    assert set(np.unique(found.numpy()).tolist()) == {0, 128, 255}
    for level in (0, 255):
        share = float((found == level).double().mean())
        assert share == pytest.approx(0.035, abs=4 * np.sqrt(0.035 / found.numel()))


@pytest.mark.parametrize("level", [0, 3, 128, 255])
def test_shot_noise_is_scipys_poisson(level: int) -> None:
    grey = torch.full((1, 1, 32, 32), level, dtype=torch.uint8)
    (white,) = CORRUPTIONS["shot_noise"].parameters(5, 32)
    lots = Draws(0, 0, 1, 5).uniform(0, 1, 32, 32)
    photons = stats.poisson.ppf(lots, white * level / 255)
    expected = np.clip(np.floor(255 * photons / white + 0.5 + 1e-6), 0, 255)
    found = corrupt_images(grey, "shot_noise", 5)[0].numpy()
    assert (found == expected).mean() > 0.999  # a lot on a step of the table may fall either way


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.5, 20.0])
def test_smooth_is_scipys_gaussian(sigma: float) -> None:
    images = layer()
    expected = ndimage.gaussian_filter(images, (0, sigma, sigma), mode="reflect", truncate=3.0)
    np.testing.assert_allclose(smooth(images, sigma, 3.0), expected, atol=1e-12)


@pytest.mark.parametrize(("radius", "softening"), [(0.4, 0.5), (1.5, 0.1), (3, 0.1), (10, 0.5)])
def test_defocus_is_scipys_convolution_with_a_disc(radius: float, softening: float) -> None:
    kernel = disc(radius, softening)
    assert kernel.sum() == pytest.approx(1)
    np.testing.assert_allclose(kernel, kernel[::-1, ::-1].T)
    images = layer()
    expected = [ndimage.convolve(one, kernel, mode="mirror") for one in images]
    np.testing.assert_allclose(convolve(images, kernel), expected, atol=1e-12)


def test_a_kernel_that_is_not_symmetric_is_turned_as_a_convolution_does() -> None:
    kernel = np.arange(9.0).reshape(3, 3)
    expected = [ndimage.convolve(one, kernel, mode="mirror") for one in layer()]
    np.testing.assert_allclose(convolve(layer(), kernel), expected, atol=1e-12)


def test_smear_is_a_correlation_with_half_a_gaussian_on_a_line() -> None:
    images, degrees, sigma = layer(), 30.0, 2.0
    kernel = np.zeros((17, 17))
    for step in range(9):
        y, x = (np.rint(step * f(np.radians(degrees))).astype(int) for f in (np.sin, np.cos))
        kernel[8 + y, 8 + x] += np.exp(-(step**2) / (2 * sigma**2))
    expected = [ndimage.correlate(one, kernel / kernel.sum(), mode="nearest") for one in images]
    np.testing.assert_allclose(smear(images, 4, sigma, degrees), expected, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.07, 2.5])
def test_zoomed_is_scipys_affine_transform(factor: float) -> None:
    image = layer()[0]
    centre = (np.array(image.shape) - 1) / 2
    expected = ndimage.affine_transform(
        image, np.eye(2) / factor, centre - centre / factor, order=1, mode="nearest"
    )
    np.testing.assert_allclose(zoomed(image, factor), expected, atol=1e-12)


def test_zoom_blur_of_the_identity_scale_is_the_mean_of_enlargements() -> None:
    images = photographs(32)[:1]
    clean = images[0].double().numpy()
    factors = np.arange(1, 1.0601, 0.01)
    mean = (clean + sum(zoomed(clean, float(f)) for f in factors)) / (1 + len(factors))
    found = corrupt_images(images, "zoom_blur", 1)[0].numpy()
    np.testing.assert_allclose(found, mean, atol=0.51)


def test_fog_keeps_the_brightest_level_and_adds_a_cloud() -> None:
    black = torch.zeros((1, 1, 32, 32), dtype=torch.uint8)
    black[0, 0, 0, 0] = 255
    found = corrupt_images(black, "fog", 2).double() / 255
    # A cloud c·p over black, scaled by 1/(1 + c), with p from 0 to 1 and c = 0.5.
    assert float(found[0, 0, 1:].max()) == pytest.approx(0.5 / 1.5, abs=0.01)
    assert float(found.min()) == pytest.approx(0, abs=0.01)
