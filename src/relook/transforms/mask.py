"""Transforms that cover a part of the image."""

from __future__ import annotations

import torch
from torch import Tensor

from relook.transforms.checks import checked

# More than covers every image from every centre, and stays exact in float64.
_LARGEST_SIDE = 2.0**31


@checked
def cutout(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Blacken a square of side `round(value · width)` around the pixel that x and y name.

    Half-way sides go to the even number, as Python's `round` does; a square of even side
    reaches one pixel further to the left of (and above) its centre than to the right.
    """
    height, width = images.shape[2:]
    side = torch.round(values * width).clamp(0, _LARGEST_SIDE)
    hidden = (
        _covered(height, y, side)[:, None, :, None] & _covered(width, x, side)[:, None, None, :]
    )
    return images.masked_fill(hidden, 0)


def _covered(length: int, place: Tensor, side: Tensor) -> Tensor:
    """Return which of `length` pixels lie in a square along this axis: bool `[n, length]`."""
    centre = torch.floor(place * length).clamp(0, length - 1)
    start = (centre - torch.floor(side / 2))[:, None]
    pixels = torch.arange(length, dtype=torch.float64, device=place.device)
    return (pixels >= start) & (pixels < start + side[:, None])
