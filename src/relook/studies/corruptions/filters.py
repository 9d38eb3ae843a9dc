"""Blurs and resampling of one image `[c, h, w]` (or a layer `[h, w]`), in float64.

Separable filters are products with small matrices; borders are folded into the matrix.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.ndimage import gaussian_filter

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

    Positions are rounded to whole pixels; the border's pixels are repeated outside of it.
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
    """Enlarge about the centre by linear interpolation, keeping the size."""
    rows, columns = (_zooming(side, factor) for side in image.shape[-2:])
    return np.asarray(rows @ image @ columns.T)


@lru_cache(maxsize=64)
def _smoothing(side: int, sigma: float, truncate: float) -> FloatArray:
    return _shared(gaussian_filter(np.eye(side), (sigma, 0), mode="reflect", truncate=truncate))


@lru_cache(maxsize=256)
def _zooming(side: int, factor: float) -> FloatArray:
    centre, places = (side - 1) / 2, np.arange(side)
    source = centre + (places - centre) / factor
    return _shared(np.stack([np.interp(source, places, one) for one in np.eye(side)], axis=1))


def _shared(matrix: FloatArray) -> FloatArray:
    matrix.flags.writeable = False  # it is in a cache
    return matrix
