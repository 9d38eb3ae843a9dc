"""Blurs and resampling of one image `[c, h, w]` (or a layer `[h, w]`), in float64.

Separable filters are products with small matrices; borders are folded into the matrix.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from relook.numerics.arrays import FloatArray

_REACH = 5  # standard deviations, beyond which a one-sided Gaussian is 0


def smooth(image: FloatArray, sigma: float, truncate: float = 4.0) -> FloatArray:
    """Blur with a Gaussian of `sigma` pixels, cut off at `truncate` sigmas.

    The border is mirrored with the edge repeated (SciPy's `reflect`).
    """
    rows, columns = (_smoothing(side, sigma, truncate) for side in image.shape[-2:])
    return np.asarray(rows @ image @ columns.T)


def convolve(image: FloatArray, kernel: FloatArray) -> FloatArray:
    """Convolve with a square kernel of odd side; the border is mirrored, its edge once."""
    margin = len(kernel) // 2
    edges = [(0, 0)] * (image.ndim - 2) + [(margin, margin)] * 2
    padded = np.pad(image, edges, mode="reflect")
    shape = padded.shape[-2:]
    spectrum = np.fft.rfft2(padded) * np.fft.rfft2(kernel, s=shape)
    blurred = np.fft.irfft2(spectrum, s=shape)
    return np.asarray(blurred[..., 2 * margin :, 2 * margin :])


def smear(image: FloatArray, radius: float, sigma: float, degrees: float) -> FloatArray:
    """Blur along a line, as a moving camera does: half a Gaussian over 2·radius + 1 pixels.

    Pixels are taken whole; the border's pixels go on outside of it.
    """
    taps = np.arange(1 + min(2 * int(np.ceil(radius)), int(np.ceil(_REACH * sigma))))
    weights = np.exp(-(taps**2) / (2 * sigma**2))
    down = np.rint(taps * np.sin(np.radians(degrees))).astype(int)
    right = np.rint(taps * np.cos(np.radians(degrees))).astype(int)
    margin = int(taps[-1])
    height, width = image.shape[-2:]
    edges = [(0, 0)] * (image.ndim - 2) + [(margin, margin)] * 2
    padded = np.pad(image, edges, mode="edge")
    total = np.zeros(image.shape)
    for weight, dy, dx in zip(weights, down + margin, right + margin, strict=True):
        total += weight * padded[..., dy : dy + height, dx : dx + width]
    return np.asarray(total / weights.sum())


def zoomed(image: FloatArray, factor: float) -> FloatArray:
    """Enlarge about the centre, keeping the size; between pixels the value is linear."""
    rows, columns = (_zooming(side, factor) for side in image.shape[-2:])
    return np.asarray(rows @ image @ columns.T)


def sampled(image: FloatArray, y: FloatArray, x: FloatArray) -> FloatArray:
    """Read an image `[c, h, w]` at places `[h, w]` between its pixels, linearly.

    Outside of it is its mirror image, without repeating the edge.
    """
    height, width = image.shape[-2:]
    y, x = _mirrored(y, height), _mirrored(x, width)
    top = np.minimum(y.astype(np.int64), height - 2)
    left = np.minimum(x.astype(np.int64), width - 2)
    down, right = y - top, x - left
    upper = image[:, top, left] * (1 - right) + image[:, top, left + 1] * right
    lower = image[:, top + 1, left] * (1 - right) + image[:, top + 1, left + 1] * right
    return np.asarray(upper * (1 - down) + lower * down)


def _mirrored(places: FloatArray, side: int) -> FloatArray:
    last = side - 1
    return np.asarray(last - np.abs(np.mod(places, 2 * last) - last))


@lru_cache(maxsize=64)
def _smoothing(side: int, sigma: float, truncate: float) -> FloatArray:
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.eye(side)
    offsets = np.arange(-radius, radius + 1)
    weights = np.exp(-(offsets**2) / (2 * sigma**2))
    places = (np.arange(side)[:, None] + offsets) % (2 * side)
    places = np.where(places < side, places, 2 * side - 1 - places)
    matrix = np.zeros((side, side))
    np.add.at(matrix, (np.arange(side)[:, None], places), weights / weights.sum())
    return _shared(matrix)


@lru_cache(maxsize=256)
def _zooming(side: int, factor: float) -> FloatArray:
    centre = (side - 1) / 2
    source = centre + (np.arange(side) - centre) / factor
    first: NDArray[np.int64] = np.clip(np.floor(source).astype(np.int64), 0, side - 2)
    matrix = np.zeros((side, side))
    matrix[np.arange(side), first] = 1 - (source - first)
    matrix[np.arange(side), first + 1] += source - first
    return _shared(matrix)


def _shared(matrix: FloatArray) -> FloatArray:
    matrix.flags.writeable = False  # it is in a cache
    return matrix
