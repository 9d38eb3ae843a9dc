"""Pictures of every kind: noise, pieces of photographs, a gradient, a flat one."""

from functools import cache

import numpy as np
from sklearn.datasets import load_sample_image
from tests.oracles.pillow_transforms import Pixels


@cache
def photo(name: str) -> Pixels:
    pixels: Pixels = load_sample_image(name).transpose(2, 0, 1)
    return pixels


def pictures(c: int, h: int, w: int, seed: int) -> Pixels:
    """Noise, two pieces of photographs, a gradient and a flat image: `[5, c, h, w]`."""
    generator = np.random.default_rng(seed)
    found = [generator.integers(0, 256, (c, h, w), dtype=np.uint8)]
    for name in ("china.jpg", "flower.jpg"):
        top = generator.integers(0, photo(name).shape[1] - h)
        left = generator.integers(0, photo(name).shape[2] - w)
        found.append(photo(name)[:c, top : top + h, left : left + w])
    ramp = np.add.outer(np.linspace(0, 150, h), np.linspace(0, 105, w))
    found.append(np.stack([ramp, 255 - ramp, 0.5 * ramp][:c]).astype(np.uint8))
    found.append(np.full((c, h, w), 37, dtype=np.uint8))
    return np.stack(found)
