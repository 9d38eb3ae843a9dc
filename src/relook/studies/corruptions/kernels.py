"""The fifteen corruptions of one image: noise, blur, weather and digital ones.

Each is `kernel(image, parameters, draws)` and returns levels from 0 to 255, not yet rounded. Frost,
fog and snow are made from random fields; no photographs are used.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import map_coordinates
from scipy.special import pdtr

from relook.numerics.arrays import FloatArray
from relook.numerics.randomness import Stream, philox
from relook.studies.corruptions.filters import convolve, smear, smooth, zoomed

Levels = NDArray[np.uint8]
"""One image, uint8 `[c, h, w]`."""

Parameters = tuple[float, ...]
"""The parameters of a kernel at one severity."""

_PURPOSE_BITS = 26  # counters for one field, of 4 numbers each: 268 million pixels
_SEVERITIES = 8
_SMALL_DISC = 8
_LUMA = (0.299, 0.587, 0.114)
_ICE = (0.9, 1.02, 1.08)
_DIRECTIONS = 6
_PLASMA, _CRYSTALS, _PANE = 0, 1, 2  # purposes of draws
_BRIGHTNESS_OF_ICE = (0.33, 0.84)
_CONTRAST_OF_ICE = 0.09
_TRUNCATE = 3.0


@dataclass(frozen=True)
class Draws:
    """The random numbers of one image under one corruption at one severity.

    `purpose` distinguishes the fields of one corruption.
    """

    seed: int
    image: int
    corruption: int
    severity: int

    def uniform(self, purpose: int, *shape: int) -> FloatArray:
        """Return numbers of 32 bits in (0, 1); without a shape, a single one `[]`."""
        count = int(np.prod(shape, dtype=np.int64))
        counter = np.empty((-(-count // 4), 4), dtype=np.uint64)
        counter[:, 0] = self.image
        counter[:, 1] = self.corruption * _SEVERITIES + self.severity
        counter[:, 2] = np.arange(len(counter)) + (purpose << _PURPOSE_BITS)
        counter[:, 3] = Stream.CORRUPT
        words = philox(counter, (self.seed & 0xFFFFFFFF, self.seed >> 32)).reshape(-1)[:count]
        return np.asarray(((words + 0.5) / 2.0**32).reshape(shape), dtype=np.float64)

    def between(self, purpose: int, low: float, high: float) -> float:
        """Return one number in (low, high)."""
        return low + (high - low) * float(self.uniform(purpose))

    def normal(self, purpose: int, *shape: int) -> FloatArray:
        """Return standard normal numbers (Box and Muller)."""
        radius, angle = self.uniform(purpose, 2, *shape)
        return np.asarray(np.sqrt(-2 * np.log(radius)) * np.cos(2 * np.pi * angle))


def gaussian_noise(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Add normal noise; the parameter is its standard deviation, where white is 1."""
    (deviation,) = parameters
    return np.asarray(image + 255 * deviation * draws.normal(0, *image.shape))


def shot_noise(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Count photons (Poisson numbers); the parameter is the mean count of white."""
    (white,) = parameters
    table, width = _poisson(white)
    levels = image.astype(np.float64)
    # The table is sorted, as each level's distribution function is offset by the level.
    place = np.searchsorted(table, levels + draws.uniform(0, *image.shape))
    return np.asarray((place - image.astype(np.int64) * width) * (255 / white))


def impulse_noise(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Make a share of the values black or white, with even odds."""
    (share,) = parameters
    draw = draws.uniform(0, *image.shape)
    return np.where(draw < share, np.where(draw < share / 2, 0.0, 255.0), image)


@lru_cache(maxsize=16)
def _poisson(white: float) -> tuple[FloatArray, int]:
    """Return the distribution functions of the 256 levels, `[256 · width]`, and the width."""
    counts = np.arange(int(white + 10 * np.sqrt(white) + 20))
    levels = np.arange(256)[:, None]
    return (levels + pdtr(counts, white * levels / 255)).reshape(-1), len(counts)


def defocus_blur(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Spread each pixel over a disc; the parameters are its radius and a softening sigma."""
    return convolve(image.astype(np.float64), disc(*parameters))


def disc(radius: float, softening: float) -> FloatArray:
    """Return the kernel of a disc, softened by a Gaussian of 3 × 3 (5 × 5 for a large disc)."""
    soft = 1 if radius <= _SMALL_DISC else 2
    reach = int(radius) + soft
    offsets = np.arange(-reach, reach + 1)
    inside = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    weights = np.exp(-(np.arange(-soft, soft + 1) ** 2) / (2 * softening**2))
    kernel = np.zeros_like(inside)
    for (y, x), weight in np.ndenumerate(np.outer(weights, weights)):
        kernel += weight * np.roll(inside, (y - soft, x - soft), (0, 1))
    return np.asarray(kernel / kernel.sum())


def glass_blur(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Blur, replace each pixel by a random one nearby, and blur again.

    The parameters are the blur's sigma, the largest distance, and the number of replacements.
    """
    sigma, reach, times = parameters
    reach = max(1, round(reach))
    height, width = image.shape[-2:]
    y, x = np.mgrid[:height, :width]
    shuffled = smooth(image.astype(np.float64), sigma)
    for turn in range(max(1, round(times))):
        dy, dx = np.floor(2 * reach * draws.uniform(turn, 2, height, width)).astype(int) - reach
        shuffled = shuffled[:, np.clip(y + dy, 0, height - 1), np.clip(x + dx, 0, width - 1)]
    return smooth(shuffled, sigma)


def motion_blur(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Smear along a line within 45° of the horizontal; the parameters are radius and sigma."""
    radius, sigma = parameters
    return smear(image.astype(np.float64), radius, sigma, draws.between(0, -45, 45))


def zoom_blur(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Average the image and its enlargements; the parameters are the largest factor and step."""
    largest, step = parameters
    factors = np.linspace(1, largest, 1 + round((largest - 1) / step))
    levels = image.astype(np.float64)
    total = sum((zoomed(levels, float(factor)) for factor in factors), start=levels)
    return np.asarray(total / (1 + len(factors)))


def snow(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Add falling flakes, and whiten the image behind them.

    The parameters are mean and deviation of the noise that flakes are made from, their size, the
    threshold above which there is a flake, radius and sigma of their fall, and the weight of the
    original image.
    """
    mean, deviation, size, threshold, radius, sigma, kept = parameters
    noise = mean + deviation * draws.normal(0, *image.shape[-2:])
    noise = zoomed(noise, max(1.0, size))
    flakes = np.where(noise < threshold, 0.0, np.minimum(noise, 1.0))
    flakes = smear(flakes, radius, sigma, draws.between(1, 45, 135))
    levels = image / 255
    whitened = np.maximum(levels, 1.5 * _grey(levels) + 0.5)
    covered = kept * levels + (1 - kept) * whitened
    return np.asarray(255 * (covered + flakes + flakes[::-1, ::-1]))


def frost(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Blend the image with a pane of frost; the parameters are the weights of both."""
    kept, strength = parameters
    channels, height, width = image.shape
    ice = ice_crystals(height, width, draws)
    tint = np.reshape(_ICE if channels == 3 else 1.0, (-1, 1, 1))
    return np.asarray(kept * image + strength * 255 * tint * ice)


def fog(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Add a cloud; the parameters are its density and the decay of details from scale to scale."""
    density, decay = parameters
    levels = image / 255
    brightest = levels.max()
    height, width = image.shape[-2:]
    cloud = plasma(height, width, decay, draws)
    return np.asarray(255 * (levels + density * cloud) * brightest / (brightest + density))


def brightness(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Raise the value (the largest channel) by an amount; hue and saturation do not change."""
    (amount,) = parameters
    value = image.max(axis=0) / 255
    raised = np.minimum(value + amount, 1.0)
    share = np.divide(image / 255, value, out=np.ones(image.shape), where=value > 0)
    return np.asarray(255 * raised * share)


def plasma(height: int, width: int, decay: float, draws: Draws) -> FloatArray:
    """Return a cloud `[h, w]` from 0 to 1: a sum of noise on finer and finer grids.

    As in the midpoint displacement of the published sets, halving the mesh divides the strength
    of the noise by decay².
    """
    octaves = (max(height, width) - 1).bit_length()
    numbers = 2 * draws.uniform(_PLASMA, 4 ** (octaves + 1) // 3 - 1) - 1  # 4 + 16 + 64 + …
    field = np.zeros((1, 1))
    strength, used = 1.0, 0
    for _ in range(octaves):
        field = _refined(_refined(field, 0), 1)
        strength /= decay**2
        field += strength * numbers[used : used + field.size].reshape(field.shape)
        used += field.size
    return _stretched(field[:height, :width])


def ice_crystals(height: int, width: int, draws: Draws) -> FloatArray:
    """Return a pane of frost `[h, w]` from 0 to 1: a film of ice with needles on it.

    The brightness varies between panes and within a pane about as much as in the photographs of
    the published sets.
    """
    film = plasma(height, width, 1.5, draws)
    length = max(3.0, min(height, width) / 8)
    positions, grain = draws.uniform(_CRYSTALS, 2, height, width)
    turn, level = draws.uniform(_PANE, 2)
    seeds = np.where(positions < 0.3 / length**1.5, 1.0, 0.0)
    needles = [
        smear(seeds, length, length / 2, 360 / _DIRECTIONS * (turn + way))
        for way in range(_DIRECTIONS)
    ]
    crystals = np.minimum(np.sum(needles, axis=0) * length, 1.5)
    texture = film + crystals * (0.5 + film) + 0.3 * grain
    texture = (texture - texture.mean()) / texture.std()
    dark, light = _BRIGHTNESS_OF_ICE
    return np.asarray(np.clip(dark + (light - dark) * level + _CONTRAST_OF_ICE * texture, 0, 1))


def _refined(field: FloatArray, axis: int) -> FloatArray:
    """Double a periodic grid along an axis; new points are the means of their neighbours."""
    between = (field + np.roll(field, -1, axis)) / 2
    shape = list(field.shape)
    shape[axis] *= 2
    return np.stack([field, between], axis=axis + 1).reshape(shape)


def _stretched(field: FloatArray) -> FloatArray:
    low, high = field.min(), field.max()
    return np.asarray((field - low) / (high - low))


def _grey(levels: FloatArray) -> FloatArray:
    if len(levels) == 1:
        return levels
    return np.asarray(np.tensordot(_LUMA, levels, 1))[None]


def contrast(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Keep a share of each value's distance to its channel's mean."""
    (share,) = parameters
    mean = image.mean(axis=(1, 2), keepdims=True)
    return np.asarray((image - mean) * share + mean)


def elastic_transform(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Apply a random affine map, by shifting three points, and random ripples.

    The parameters, as shares of the shorter side, are the strength of the ripples, their
    smoothness, and the largest shift of a point.
    """
    height, width = image.shape[-2:]
    y, x = np.mgrid[:height, :width].astype(np.float64)
    dy, dx = ripples(height, width, parameters, draws)
    y, x = _affine(height, width, parameters[2], draws, y + dy, x + dx)
    layers = [map_coordinates(one, (y, x), float, order=1, mode="mirror") for one in image]
    return np.stack(layers)


def ripples(height: int, width: int, parameters: Parameters, draws: Draws) -> FloatArray:
    """Return the elastic part of the deformation in pixels, `[2, h, w]`: down and right."""
    strength, smoothness, _ = (share * min(height, width) for share in parameters)
    field = 2 * draws.uniform(1, 2, height, width) - 1
    return strength * smooth(field, smoothness, _TRUNCATE)


def pixelate(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Shrink to a share of the side by averaging boxes, and enlarge again."""
    (share,) = parameters
    height, width = image.shape[-2:]
    small = max(1, int(width * share)), max(1, int(height * share))
    picture = _picture(image).resize(small, Image.Resampling.BOX)
    return _levels(picture.resize((width, height), Image.Resampling.BOX), image)


def jpeg_compression(image: Levels, parameters: Parameters, draws: Draws) -> FloatArray:
    """Write the image as JPEG and read it back; the parameter is the quality."""
    (quality,) = parameters
    file = io.BytesIO()
    _picture(image).save(file, "JPEG", quality=round(quality))
    with Image.open(file) as picture:
        return _levels(picture, image)


def _affine(
    height: int, width: int, share: float, draws: Draws, y: FloatArray, x: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the source positions `(y, x)` when three points of the image have moved."""
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
