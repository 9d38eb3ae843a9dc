"""Noise: gaussian (electronic), shot (few photons), impulse (dead pixels)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from relook.numerics.arrays import FloatArray
from relook.studies.corruptions.draws import Draws, Levels


def gaussian_noise(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Add normal noise; the parameter is its standard deviation, white is 1."""
    (deviation,) = parameters
    return np.asarray(image + 255 * deviation * draws.normal(0, *image.shape))


def shot_noise(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Count photons: Poisson numbers; the parameter is how many make white, on average."""
    (white,) = parameters
    table, width = _poisson(white)
    levels = image.astype(np.float64)
    # One sorted list holds the distribution of every level, raised by the level.
    place = np.searchsorted(table, levels + draws.uniform(0, *image.shape))
    return np.asarray((place - image.astype(np.int64) * width) * (255 / white))


def impulse_noise(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Make a share of the values black or white, with even odds."""
    (share,) = parameters
    lot = draws.uniform(0, *image.shape)
    return np.where(lot < share, np.where(lot < share / 2, 0.0, 255.0), image)


@lru_cache(maxsize=16)
def _poisson(white: float) -> tuple[FloatArray, int]:
    """Return the distribution functions of the 256 levels, `[256 · width]`, and the width."""
    counts = np.arange(int(white + 10 * np.sqrt(white) + 20))
    means = white * np.arange(256)[:, None] / 255
    log_factorials = np.cumsum(np.log(np.maximum(counts, 1)))
    with np.errstate(divide="ignore", invalid="ignore"):  # a mean of 0 is mended below
        chances = np.exp(counts * np.log(means) - means - log_factorials)
    chances[0] = counts == 0
    chances[:, 0] = np.exp(-means[:, 0])
    cumulated = np.minimum(np.cumsum(chances, axis=1), 1.0)
    cumulated[:, -1] = 1.0
    return (cumulated + np.arange(256)[:, None]).reshape(-1), len(counts)
