"""Photographs to corrupt: parts of the pictures that come with scikit-learn."""

from functools import cache

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

_LEAST_CONTRAST = 35.0  # keeps the sky out


@cache
def photographs(side: int, count: int = 4) -> Tensor:
    """Return tiles of two photographs, count × count of each but for flat ones, side × side."""
    found = []
    for name in ("china.jpg", "flower.jpg"):
        whole = Image.fromarray(load_sample_image(name)[:424, 100:524])
        scaled = np.asarray(whole.resize((side * count, side * count), Image.Resampling.LANCZOS))
        tiles = scaled.reshape(count, side, count, side, 3).transpose(0, 2, 4, 1, 3)
        found += [tile for tile in tiles.reshape(-1, 3, side, side) if tile.std() > _LEAST_CONTRAST]
    return torch.from_numpy(np.stack(found))
