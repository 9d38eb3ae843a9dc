"""Digital: contrast, elastic deformation, large pixels, JPEG."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from relook.numerics.arrays import FloatArray
from relook.studies.corruptions.draws import Draws, Levels
from relook.studies.corruptions.filters import sampled, smooth

_TRUNCATE = 3.0


def contrast(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Keep a share of each value's distance to its channel's mean."""
    (share,) = parameters
    mean = image.mean(axis=(1, 2), keepdims=True)
    return np.asarray((image - mean) * share + mean)


def elastic_transform(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Shift three points at random, the image with them, and ripple it.

    The parameters, as shares of the shorter side: the ripples' strength and their
    smoothness, and how far a point is shifted at most.
    """
    height, width = image.shape[-2:]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    dy, dx = ripples(height, width, parameters, draws)
    y, x = _affine(height, width, parameters[2], draws, y + dy, x + dx)
    return sampled(image.astype(np.float64), y, x)


def ripples(height: int, width: int, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Return the elastic part of the deformation in pixels, `[2, h, w]`: down and right."""
    strength, smoothness, _ = (share * min(height, width) for share in parameters)
    field = 2 * draws.uniform(1, 2, height, width) - 1
    return strength * smooth(field, smoothness, _TRUNCATE)


def pixelate(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Shrink by averaging boxes to a share of the side, and enlarge back."""
    (share,) = parameters
    height, width = image.shape[-2:]
    small = max(1, int(width * share)), max(1, int(height * share))
    picture = _picture(image).resize(small, Image.Resampling.BOX)
    return _levels(picture.resize((width, height), Image.Resampling.BOX), image)


def jpeg_compression(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Write the image as JPEG of a quality, and read it back."""
    (quality,) = parameters
    file = io.BytesIO()
    _picture(image).save(file, "JPEG", quality=round(quality))
    with Image.open(file) as picture:
        return _levels(picture, image)


def _affine(
    height: int, width: int, share: float, draws: Draws, y: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return where places come from when three points of the image have moved."""
    side = min(height, width)
    third = side / 3
    corners = np.array([[1, 1], [1, -1], [-1, -1]]) * third
    centre = np.array([(height - 1) / 2, (width - 1) / 2])
    moved = corners + share * side * (2 * draws.uniform(0, 3, 2) - 1)
    ones = np.ones((3, 1))
    back = np.linalg.solve(np.hstack([moved, ones]), corners)  # [3, 2]: from moved to original
    places = np.stack([y - centre[0], x - centre[1], np.ones_like(y)], axis=-1) @ back
    return places[..., 0] + centre[0], places[..., 1] + centre[1]


def _picture(image: Levels) -> Image.Image:
    return Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1).copy())


def _levels(picture: Image.Image, like: Levels) -> FloatArray:
    return np.moveaxis(np.atleast_3d(np.asarray(picture, dtype=np.float64)), -1, 0).reshape(
        like.shape
    )
