"""Blurs: out of focus, through frosted glass, by motion, by zooming."""

from __future__ import annotations

import numpy as np

from relook.numerics.arrays import FloatArray
from relook.studies.corruptions.draws import Draws, Levels
from relook.studies.corruptions.filters import convolve, smear, smooth, zoomed

_SMALL_DISC = 8


def defocus_blur(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
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


def glass_blur(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Blur, let each pixel show one nearby, drawn at random, and blur again.

    The parameters are the blur's sigma, how far away, and how many times.
    """
    sigma, reach, times = parameters
    reach = max(1, round(reach))
    height, width = image.shape[-2:]
    y, x = np.mgrid[:height, :width]
    seen = smooth(image.astype(np.float64), sigma)
    for turn in range(max(1, round(times))):
        dy, dx = np.floor(2 * reach * draws.uniform(turn, 2, height, width)).astype(int) - reach
        seen = seen[:, np.clip(y + dy, 0, height - 1), np.clip(x + dx, 0, width - 1)]
    return smooth(seen, sigma)


def motion_blur(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Smear along a line within 45° of the horizontal; radius and sigma."""
    radius, sigma = parameters
    return smear(image.astype(np.float64), radius, sigma, draws.between(0, -45, 45))


def zoom_blur(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Average the image and enlargements of it, up to a factor, in steps."""
    largest, step = parameters
    factors = np.linspace(1, largest, 1 + round((largest - 1) / step))
    levels = image.astype(np.float64)
    total = sum((zoomed(levels, float(factor)) for factor in factors), start=levels)
    return np.asarray(total / (1 + len(factors)))
