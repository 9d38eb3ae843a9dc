"""Transforms that cover a part of the image."""

from __future__ import annotations

import torch
from torch import Tensor

from relook.transforms.checks import checked
from relook.transforms.steps import Numbers

# More than covers every image from every centre, and stays exact in float64.
_LARGEST_SIDE = 2.0**31


@checked
def cutout(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Blacken a square of side `round(value · width)` around the pixel that x and y name.

    Half-way sides go to the even number, as Python's `round` does; a square of even side
    reaches one pixel further to the left of (and above) its centre than to the right.
    """
    height, width = images.shape[2:]
    across, down = covered(width, x, values * width), covered(height, y, values * width)
    hidden = _within(height, *down)[:, None, :, None] & _within(width, *across)[:, None, None, :]
    return images.masked_fill(hidden, 0)


def covered(length: int, place: Numbers, side: Numbers) -> tuple[Numbers, Numbers]:
    """Return where a square begins and ends along an axis, in whole numbers."""
    side = side.round().clip(0, _LARGEST_SIDE)
    start = (place * length // 1).clip(0, length - 1) - side // 2
    return start, start + side


def _within(length: int, start: Tensor, stop: Tensor) -> Tensor:
    """Return which pixels of an axis lie in a square: bool `[n, length]`."""
    pixels = torch.arange(length, dtype=torch.float64, device=start.device)
    return (pixels >= start[:, None]) & (pixels < stop[:, None])
