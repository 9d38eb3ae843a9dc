"""Colour transforms: what Pillow's ImageOps and ImageEnhance do, on uint8 batches.

Each kernel takes images `[n, c, h, w]` and values `[n]`, and repeats Pillow's arithmetic (integer
weights, float32 blends, truncation), so that the bytes agree.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEVELS = 256
# Beyond this every blend is black or white; the limit keeps the factor finite in float32.
_LARGEST_FACTOR = 1e30


def identity(images: Tensor, values: Tensor) -> Tensor:
    """Return a copy of the images."""
    return _copy(images)


def invert(images: Tensor, values: Tensor) -> Tensor:
    """Turn each grey level g into 255 − g."""
    return 255 - images


def solarize(images: Tensor, values: Tensor) -> Tensor:
    """Invert the grey levels from the threshold `value` on."""
    return _look_up(images, _solarized_levels(values)[:, None])


def solarize_add(images: Tensor, values: Tensor) -> Tensor:
    """Average each image with its solarised self."""
    table = (_levels(images) + _solarized_levels(values)) // 2
    return _look_up(images, table[:, None])


def posterize(images: Tensor, values: Tensor) -> Tensor:
    """Keep the highest `value` bits of each grey level, rounded down; 0 bits is black."""
    bits = torch.floor(values).clamp(0, 8).to(torch.int64)
    unit = 2 ** (8 - bits[:, None])
    levels = _levels(images)
    return _look_up(images, (levels - levels % unit)[:, None])


def autocontrast(images: Tensor, values: Tensor) -> Tensor:
    """Stretch each channel to the full range, `value` per cent cut off at either end."""
    counts = _histogram(images)
    cut = cut_off(values, images.shape[2] * images.shape[3])[:, None, None]
    past_low_cut = counts.cumsum(2) > cut
    past_high_cut = counts.flip(2).cumsum(2) > cut
    # Counts the levels that are cut off; argmax would fail for a channel that is cut off entirely.
    low = (~past_low_cut).sum(2, keepdim=True)
    high = 255 - (~past_high_cut).sum(2, keepdim=True)
    levels = _levels(images)
    # torch divides a number by a tensor through the reciprocal, which rounds twice.
    scale = torch.full_like(values, 255.0)[:, None, None] / (high - low).clamp(min=1)
    stretched = (levels * scale + -low * scale).clamp(0, 255).to(torch.int64)
    return _look_up(images, torch.where(high > low, stretched, levels))


def equalize(images: Tensor, values: Tensor) -> Tensor:
    """Spread each channel's grey levels evenly, as ImageOps.equalize does."""
    counts = _histogram(images)
    pixels = images.shape[2] * images.shape[3]
    levels = _levels(images)
    brightest = torch.where(counts > 0, levels, 0).amax(2, keepdim=True)
    step = (pixels - counts.gather(2, brightest)) // 255
    darker = counts.cumsum(2) - counts
    table = ((step // 2 + darker) // step.clamp(min=1)).clamp(max=255)
    return _look_up(images, torch.where(step > 0, table, levels))


def contrast(images: Tensor, values: Tensor) -> Tensor:
    """Enhance the contrast by the factor 1 + value, about the mean grey level."""
    luma = _luma(images)
    pixels = images.shape[2] * images.shape[3]
    total = luma.sum((1, 2, 3), keepdim=True, dtype=torch.int64)
    mean = torch.floor(total.to(torch.float64) / pixels + 0.5)
    return _blend(mean.to(torch.float32), images, factors(values))


def brightness(images: Tensor, values: Tensor) -> Tensor:
    """Enhance the brightness by the factor 1 + value."""
    return _blend(torch.zeros((), device=images.device), images, factors(values))


def color(images: Tensor, values: Tensor) -> Tensor:
    """Enhance the colour by the factor 1 + value; a grey image stays as it is."""
    if images.shape[1] == 1:
        return _copy(images)
    return _blend(_luma(images).to(torch.float32), images, factors(values))


def sharpness(images: Tensor, values: Tensor) -> Tensor:
    """Enhance the sharpness by the factor 1 + value."""
    return _blend(_smooth(images).to(torch.float32), images, factors(values))


def factors(values: Tensor) -> Tensor:
    """Return the enhancements' factors 1 + value, float32."""
    return (1 + values).clamp(-_LARGEST_FACTOR, _LARGEST_FACTOR).to(torch.float32)


def cut_off(values: Tensor, pixels: int) -> Tensor:
    """Return how many pixels are cut off at either end of the range, whole numbers in float64."""
    return torch.div(pixels * values, 100, rounding_mode="floor")


def _copy(images: Tensor) -> Tensor:
    return images.clone(memory_format=torch.contiguous_format)


def _levels(like: Tensor) -> Tensor:
    return torch.arange(_LEVELS, device=like.device)


def _solarized_levels(thresholds: Tensor) -> Tensor:
    """Return what each grey level becomes, int64 `[n, 256]`."""
    levels = _levels(thresholds)
    return torch.where(levels < thresholds[:, None], levels, 255 - levels)


def _look_up(images: Tensor, table: Tensor) -> Tensor:
    """Map grey levels through `table`, integers `[n, 1 or c, 256]` in 0 … 255."""
    n, c = images.shape[:2]
    table = table.to(torch.uint8).expand(n, c, _LEVELS)
    return table.gather(2, images.flatten(2).to(torch.int64)).view(images.shape)


def _histogram(images: Tensor) -> Tensor:
    """Count each channel's grey levels: int64 `[n, c, 256]`."""
    levels = images.flatten(2).to(torch.int64)
    counts = levels.new_zeros((*images.shape[:2], _LEVELS))
    return counts.scatter_add_(2, levels, levels.new_ones(()).expand_as(levels))


def _luma(images: Tensor) -> Tensor:
    """Return Pillow's "L" conversion, int32 `[n, 1, h, w]`."""
    if images.shape[1] == 1:
        return images.to(torch.int32)
    red, green, blue = images.to(torch.int32).unbind(1)
    return ((red * 19595 + green * 38470 + blue * 7471 + 0x8000) >> 16)[:, None]


def _smooth(images: Tensor) -> Tensor:
    """Return Pillow's SMOOTH filter (nine neighbours, the centre five-fold), int32.

    The outermost pixels stay as they are.
    """
    wide = images.to(torch.int32)
    height, width = images.shape[2:]
    inner = wide[:, :, 1:-1, 1:-1]
    total = 4 * inner
    for i in range(3):
        for j in range(3):
            total += wide[:, :, i : height - 2 + i, j : width - 2 + j]
    smooth = wide.clone()
    # Rounded to nearest; thirteenths are never half-way, so integers agree with Pillow's floats.
    smooth[:, :, 1:-1, 1:-1] = (2 * total + 13) // 26
    return smooth


def _blend(degenerate: Tensor, images: Tensor, factors: Tensor) -> Tensor:
    """Return `degenerate + factor · (images − degenerate)` as Image.blend does: in float32."""
    difference = images.to(torch.float32) - degenerate
    blended = difference.mul_(factors[:, None, None, None]).add_(degenerate)
    return blended.clamp_(0, 255).to(torch.uint8)
