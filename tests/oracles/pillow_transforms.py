"""The transforms written with Pillow itself, one image at a time: the oracle for the kernels."""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from relook.transforms import Transform

Pixels = NDArray[np.uint8]
Draws = Mapping[str, float]
Matrix = tuple[float, float, float, float, float, float]
Oracle = Callable[[Image.Image, float, Draws], Image.Image]


def apply(name: str, image: Pixels, value: float, draws: Draws) -> Pixels:
    """Transform one image, uint8 `[c, h, w]`, with Pillow."""
    result = ORACLES[name](to_pillow(image), value, draws)
    return from_pillow(result)


def to_pillow(image: Pixels) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))


def from_pillow(image: Image.Image) -> Pixels:
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _surrounded(image: Image.Image, reach: float = 1.0) -> tuple[Image.Image, int]:
    """Return the image amid its mirror images, `reach` sides wide, and that border's width."""
    border = math.ceil(reach * max(image.size)) + 4
    margins = [(border, border), (border, border), (0, 0)]
    pixels = np.asarray(image)
    return Image.fromarray(np.pad(pixels, margins[: pixels.ndim], mode="reflect")), border


def _affine(image: Image.Image, matrix: Matrix, resample: Image.Resampling) -> Image.Image:
    """Warp the image with Image.transform, in its mirrored surround."""
    a, b, c, d, e, f = matrix
    padded, border = _surrounded(
        image, max(abs(b), abs(d), abs(c / image.width), abs(f / image.height))
    )
    shifted = (a, b, c + border, d, e, f + border)
    return padded.transform(image.size, Image.Transform.AFFINE, shifted, resample)


def _shear_x(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    slope = value * draws["sign"]
    near, far = (1, slope, 0, 0, 1, 0), (1, -slope, slope * image.height, 0, 1, 0)
    return _affine(image, far if draws["edge"] else near, Image.Resampling.BICUBIC)


def _shear_y(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    slope = value * draws["sign"]
    near, far = (1, 0, 0, slope, 1, 0), (1, 0, 0, -slope, 1, slope * image.width)
    return _affine(image, far if draws["edge"] else near, Image.Resampling.BICUBIC)


def _translate_x(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    shift = draws["sign"] * value * image.width
    return _affine(image, (1, 0, shift, 0, 1, 0), Image.Resampling.NEAREST)


def _translate_y(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    shift = draws["sign"] * value * image.height
    return _affine(image, (1, 0, 0, 0, 1, shift), Image.Resampling.NEAREST)


def _rotate(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    padded, border = _surrounded(image)
    turned = padded.rotate(draws["sign"] * value, Image.Resampling.BICUBIC)
    return turned.crop((border, border, border + image.width, border + image.height))


def _solarize(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    return ImageOps.solarize(image, value)  # type: ignore[arg-type]


def _posterize(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    bits = int(value)
    return ImageOps.posterize(image, bits) if bits else Image.new(image.mode, image.size)


def _enhance(enhancement: Callable[[Image.Image], ImageEnhance._Enhance]) -> Oracle:
    return lambda image, value, draws: enhancement(image).enhance(1 + value)


def _cutout(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    side = round(value * image.width)
    centre_x = min(int(draws["x"] * image.width), image.width - 1)
    centre_y = min(int(draws["y"] * image.height), image.height - 1)
    left, top = centre_x - side // 2, centre_y - side // 2
    result = image.copy()
    if side:
        corners = (left, top, left + side - 1, top + side - 1)
        ImageDraw.Draw(result).rectangle(corners, fill=0)
    return result


def _mirroring(crop: Oracle) -> Oracle:
    """The crop, and then its mirror image where `flip` is 1."""

    def both(image: Image.Image, value: float, draws: Draws) -> Image.Image:
        cropped = crop(image, value, draws)
        return ImageOps.mirror(cropped) if draws["flip"] == 1 else cropped

    return both


def _place(share: float, free: int) -> int:
    return min(int(share * (free + 1)), free)


def _crop(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    padding = round(value)
    left, top = _place(draws["x"], 2 * padding), _place(draws["y"], 2 * padding)
    padded = ImageOps.expand(image, border=padding, fill=0)
    return padded.crop((left, top, left + image.width, top + image.height))


def _reflect_crop(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    padding = round(value)
    padded, border = _surrounded(image, padding / max(image.size))
    left, top = (border - padding + _place(draws[name], 2 * padding) for name in ("x", "y"))
    return padded.crop((left, top, left + image.width, top + image.height))


def _resized_box(image: Image.Image, width: int, height: int, draws: Draws) -> Image.Image:
    left, top = _place(draws["x"], image.width - width), _place(draws["y"], image.height - height)
    box = image.crop((left, top, left + width, top + height))
    return box.resize(image.size, Image.Resampling.BICUBIC)


def _scale_crop(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    return _cropped(image, min(1.0, value + 0.01 * draws["area"]), draws)


def _resized_crop(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    return _cropped(image, value + (1 - value) * draws["area"], draws)


def _cropped(image: Image.Image, share: float, draws: Draws) -> Image.Image:
    """The nearest aspect is the drawn one, clipped to those with which the area fits."""
    area = image.width * image.height * share
    aspect = 3 / 4 * (16 / 9) ** draws["aspect"]
    width, height = math.sqrt(area * aspect), math.sqrt(area / aspect)
    if aspect > image.width**2 / area:
        width, height = image.width, area / image.width
    if aspect < area / image.height**2:
        width, height = area / image.height, image.height
    return _resized_box(image, max(round(width), 1), max(round(height), 1), draws)


def _zoom(image: Image.Image, value: float, draws: Draws) -> Image.Image:
    return _resized_box(image, round(value * image.width), round(value * image.height), draws)


ORACLES: dict[str, Oracle] = {
    "identity": lambda image, value, draws: image.copy(),
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
    "rotate": _rotate,
    "autocontrast": lambda image, value, draws: ImageOps.autocontrast(image, cutoff=value),
    "solarize": _solarize,
    "solarize_add": lambda image, value, draws: Image.blend(
        image, _solarize(image, value, draws), 0.5
    ),
    "posterize": _posterize,
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "color": _enhance(ImageEnhance.Color),
    "sharpness": _enhance(ImageEnhance.Sharpness),
    "cutout": _cutout,
    "invert": lambda image, value, draws: ImageOps.invert(image),
    "equalize": lambda image, value, draws: ImageOps.equalize(image),
    "scale_crop": _scale_crop,
    "resized_crop": _resized_crop,
    "crop": _crop,
    "reflect_crop": _reflect_crop,
    "flip": lambda image, value, draws: ImageOps.mirror(image),
    "quarter_turn": lambda image, value, draws: image.rotate(90 * round(value), expand=True),
    "zoom": _zoom,
}
for _name in ("crop", "reflect_crop", "scale_crop", "resized_crop"):
    ORACLES[f"{_name}_flip"] = _mirroring(ORACLES[_name])


def random_draws(
    row: Transform, count: int, generator: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """Draw what the transform needs for `count` images."""
    outcomes = {"sign": (-1.0, 1.0), "edge": (0.0, 1.0), "flip": (0.0, 1.0)}
    return {
        name: generator.choice(outcomes[name], count)
        if name in outcomes
        else generator.random(count)
        for name in row.draws
    }
