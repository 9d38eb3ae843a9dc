"""Transforms of other libraries as functions for `relook.register_transform`.

`make(value)` returns the library's own transform at that value, without randomness: both ends of
every range equal, and a probability of 1. Images go through it one by one, so that an image's view
never depends on its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from relook.errors import RelookError

Make = Callable[[float], Callable[..., Any]]
Kernel = Callable[[Tensor, Tensor], Tensor]


def from_torchvision(make: Make) -> Kernel:
    """Adapt torchvision v2 transforms, which are called with a uint8 image `[c, h, w]`."""
    return _one_by_one(make, lambda transform, image: transform(image))


def from_kornia(make: Make) -> Kernel:
    """Adapt Kornia transforms, which are called with a float image `[1, c, h, w]` in 0 … 1."""

    def run(transform: Callable[..., Any], image: Tensor) -> Tensor:
        levels: Tensor = transform(image[None].float() / 255)[0] * 255
        return levels.round().clamp(0, 255).to(torch.uint8)

    return _one_by_one(make, run)


def from_albumentations(make: Make) -> Kernel:
    """Adapt Albumentations transforms, which are called with `image=`, uint8 `[h, w, c]`."""

    def run(transform: Callable[..., Any], image: Tensor) -> Tensor:
        channels, height, width = image.shape
        pixels = image.permute(1, 2, 0).cpu().contiguous().numpy()
        changed = torch.from_numpy(transform(image=pixels)["image"].copy())
        return changed.reshape(height, width, channels).permute(2, 0, 1).to(image.device)

    return _one_by_one(make, run)


def _one_by_one(make: Make, run: Callable[[Callable[..., Any], Tensor], Tensor]) -> Kernel:
    def kernel(images: Tensor, values: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            raise RelookError("a transform of another library cannot be exported: use relook.TTA")
        each = values.tolist()
        made = {value: make(value) for value in set(each)}  # anew: threads must not share any
        pairs = zip(images, each, strict=True)
        return torch.stack([run(made[value], image) for image, value in pairs])

    return kernel
