"""The transforms written with Pillow for speed: what a data loader's worker would run.

The bytes are those of the oracle in the tests; the mirrored surround is cut to what a warp needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from relook.transforms.geometry import rotation
from relook.transforms.resampling import CROP_SHARES, crop_box

Draws = Mapping[str, float]
Picture = Image.Image
PillowStep = Callable[[Picture, float, Draws], Picture]
Matrix = tuple[float, float, float, float, float, float]

BICUBIC, NEAREST = Image.Resampling.BICUBIC, Image.Resampling.NEAREST


@lru_cache(maxsize=256)
def _mirrored(length: int, before: int, after: int) -> NDArray[np.intp]:
    index = np.arange(-before, length + after) % (2 * (length - 1))
    return np.minimum(index, 2 * (length - 1) - index)


def _warped(image: Picture, matrix: Matrix, resample: Image.Resampling) -> Picture:
    """Warp with Image.transform, amid as much of the mirrored surround as the taps reach."""
    a, b, c, d, e, f = matrix
    width, height = image.size
    reach = []
    for p, q, r, length in ((a, b, c, width), (d, e, f, height)):
        corners = [p * x + q * y + r for x in (0, width) for y in (0, height)]
        reach += [max(0, math.ceil(2 - min(corners))), max(0, math.ceil(max(corners)) + 2 - length)]
    left, right, top, bottom = reach
    pixels = np.asarray(image)
    rows, columns = _mirrored(height, top, bottom), _mirrored(width, left, right)
    padded = Image.fromarray(pixels[rows[:, None], columns])
    # Where the matrix meets the padded image: pixel (left, top) is the old (0, 0).
    shifted = (a, b, c + left, d, e, f + top)
    return padded.transform(image.size, Image.Transform.AFFINE, shifted, resample)


def _shear_x(image: Picture, value: float, draws: Draws) -> Picture:
    slope = value * draws["sign"]
    far = (1, -slope, slope * image.height, 0, 1, 0)
    return _warped(image, far if draws["edge"] else (1, slope, 0, 0, 1, 0), BICUBIC)


def _shear_y(image: Picture, value: float, draws: Draws) -> Picture:
    slope = value * draws["sign"]
    far = (1, 0, 0, -slope, 1, slope * image.width)
    return _warped(image, far if draws["edge"] else (1, 0, 0, slope, 1, 0), BICUBIC)


def _translate_x(image: Picture, value: float, draws: Draws) -> Picture:
    return _warped(image, (1, 0, draws["sign"] * value * image.width, 0, 1, 0), NEAREST)


def _translate_y(image: Picture, value: float, draws: Draws) -> Picture:
    return _warped(image, (1, 0, 0, 0, 1, draws["sign"] * value * image.height), NEAREST)


def _rotate(image: Picture, value: float, draws: Draws) -> Picture:
    a, b, c, d, e, f = rotation(draws["sign"] * value, image.width, image.height)
    return _warped(image, (a, b, c, d, e, f), BICUBIC)


def _solarize(image: Picture, value: float, draws: Draws) -> Picture:
    return ImageOps.solarize(image, value)  # type: ignore[arg-type]


def _solarize_add(image: Picture, value: float, draws: Draws) -> Picture:
    return Image.blend(image, _solarize(image, value, draws), 0.5)


def _posterize(image: Picture, value: float, draws: Draws) -> Picture:
    bits = int(value)
    return ImageOps.posterize(image, bits) if bits else Image.new(image.mode, image.size)


def _enhance(enhancement: Any) -> PillowStep:
    return lambda image, value, draws: enhancement(image).enhance(1 + value)


def _cutout(image: Picture, value: float, draws: Draws) -> Picture:
    side = round(value * image.width)
    left = min(int(draws["x"] * image.width), image.width - 1) - side // 2
    top = min(int(draws["y"] * image.height), image.height - 1) - side // 2
    result = image.copy()
    if side:
        corners = (left, top, left + side - 1, top + side - 1)
        ImageDraw.Draw(result).rectangle(corners, fill=0)
    return result


def _crop_flip(image: Picture, value: float, draws: Draws) -> Picture:
    padding = round(value)
    left, top = (
        min(int(draws[axis] * (2 * padding + 1)), 2 * padding) - padding for axis in ("x", "y")
    )
    # Image.crop fills what lies outside with black.
    cut = image.crop((left, top, left + image.width, top + image.height))
    return ImageOps.mirror(cut) if draws["flip"] else cut


def _scale_crop_flip(image: Picture, value: float, draws: Draws) -> Picture:
    share = CROP_SHARES["scale_crop"](np.float64(value), draws["area"])
    places = (draws[name] for name in ("aspect", "x", "y"))
    box = crop_box(image.width, image.height, float(share), *places)
    corners = (box.left, box.top, box.left + box.width, box.top + box.height)
    resized = image.crop(corners).resize(image.size, BICUBIC)
    return ImageOps.mirror(resized) if draws["flip"] else resized


PILLOW: Mapping[str, PillowStep] = {
    "identity": lambda image, value, draws: image,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "rotate": _rotate,
    "autocontrast": lambda image, value, draws: ImageOps.autocontrast(image, cutoff=value),
    "solarize": _solarize,
    "solarize_add": _solarize_add,
    "posterize": _posterize,
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "color": _enhance(ImageEnhance.Color),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "cutout": _cutout,
    "invert": lambda image, value, draws: ImageOps.invert(image),
    "equalize": lambda image, value, draws: ImageOps.equalize(image),
    "scale_crop_flip": _scale_crop_flip,
    "crop_flip": _crop_flip,
}


def pillow_views(
    images: NDArray[np.uint8], steps: list[tuple[str, float, dict[str, NDArray[np.float64]]]]
) -> NDArray[np.uint8]:
    """Apply steps (transform, value, draws by name) to colour images `[n, h, w, 3]`, one by one."""
    views = np.empty_like(images)
    for i in range(len(images)):
        picture = Image.fromarray(images[i])
        for name, value, draws in steps:
            picture = PILLOW[name](picture, value, {k: float(d[i]) for k, d in draws.items()})
        views[i] = np.asarray(picture)
    return views
