"""Weather: snow, frost, fog, and bright light.

Frost, fog and snow are made from random fields; no photographs are used.
"""

from __future__ import annotations

import numpy as np

from relook.numerics.arrays import FloatArray
from relook.studies.corruptions.draws import Draws, Levels
from relook.studies.corruptions.filters import smear, zoomed

_LUMA = (0.299, 0.587, 0.114)
_ICE = (0.9, 1.02, 1.08)
_DIRECTIONS = 6
_PLASMA, _CRYSTALS, _PANE = 0, 1, 2  # what numbers are drawn for
_BRIGHTNESS_OF_ICE = (0.33, 0.84)
_CONTRAST_OF_ICE = 0.09


def snow(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Let flakes fall, and whiten what is behind them.

    The parameters: mean and deviation of the noise that flakes are made from, their size, the
    threshold above which there is a flake, radius and sigma of their fall, and how much of
    the image stays as it is.
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


def frost(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Lay a pane of frost over the image: its share and that of the frost."""
    kept, strength = parameters
    channels, height, width = image.shape
    ice = ice_crystals(height, width, draws)
    tint = np.reshape(_ICE if channels == 3 else 1.0, (-1, 1, 1))
    return np.asarray(kept * image + strength * 255 * tint * ice)


def fog(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Add a cloud of a density, whose details fade by a factor from one scale to the next."""
    density, decay = parameters
    levels = image / 255
    brightest = levels.max()
    height, width = image.shape[-2:]
    cloud = plasma(height, width, decay, draws)
    return np.asarray(255 * (levels + density * cloud) * brightest / (brightest + density))


def brightness(image: Levels, parameters: tuple[float, ...], draws: Draws) -> FloatArray:
    """Raise the value (the largest channel) by an amount; hue and saturation stay."""
    (amount,) = parameters
    value = image.max(axis=0) / 255
    raised = np.minimum(value + amount, 1.0)
    share = np.divide(image / 255, value, out=np.ones(image.shape), where=value > 0)
    return np.asarray(255 * raised * share)


def plasma(height: int, width: int, decay: float, draws: Draws) -> FloatArray:
    """Return a cloud `[h, w]` from 0 to 1: noise on ever finer grids, ever weaker.

    As in the midpoint displacement of the published sets, a grid of half the mesh gets
    noise that is weaker by decay².
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
    """Return a pane of frost `[h, w]` from 0 to 1: a film of ice, and needles on it.

    Panes differ in brightness, and each in itself by about as much as the photographs of
    the published sets do.
    """
    film = plasma(height, width, 1.5, draws)
    length = max(3.0, min(height, width) / 8)
    lots, grain = draws.uniform(_CRYSTALS, 2, height, width)
    turn, level = draws.uniform(_PANE, 2)
    seeds = np.where(lots < 0.3 / length**1.5, 1.0, 0.0)
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
