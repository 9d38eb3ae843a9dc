"""Geometric transforms: what Pillow's transform, rotate and resize do, and cutout.

Warps see the image continued by reflection without repeating the edge (period 2(n − 1)), to any
distance. Coordinates are Pillow's: pixel i covers [i, i + 1), its centre is i + ½.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from relook.errors import RelookError
from relook.transforms.resampling import (
    BITS,
    CROP_SHARES,
    Box,
    boxes_of,
    crop_box,
    resize_taps,
    zoomed_box,
)
from relook.transforms.steps import Numbers

# Far outside every image; it keeps coordinates and paddings within exact integers.
_FAR = 2.0**31
# Covers every image from every centre, and is exact in float64.
_LARGEST_SIDE = 2.0**31
# Warps work on this many pixels at a time, so that float64 intermediates stay in the cache.
_PART = 1 << 16


def rotate(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Turn by `sign · value` degrees counter-clockwise about the centre."""
    height, width = images.shape[2:]
    return _in_parts(_warp, images, *rotated_places(sign * values, height, width))


def shear_x(images: Tensor, values: Tensor, sign: Tensor, edge: Tensor) -> Tensor:
    """Slide rows by `sign · value` pixels a row, counted from the top (edge 0) or bottom (1)."""
    height, width = images.shape[2:]
    return _in_parts(_warp_rows, images, sheared_places(sign * values, edge, height, width))


def shear_y(images: Tensor, values: Tensor, sign: Tensor, edge: Tensor) -> Tensor:
    """Slide columns by `sign · value` pixels a column, from the left (edge 0) or right (1)."""
    return _transposed(shear_x(_transposed(images), values, sign=sign, edge=edge))


def translate_x(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Take each pixel from `sign · value · width` further right, to the nearest pixel.

    Half-way shifts go right (up in number), as in Pillow's NEAREST.
    """
    width = images.shape[3]
    shift = whole_shift(sign * values, width).to(torch.int64)
    columns = torch.arange(width, device=images.device) + shift[:, None]
    return _take_columns(images, mirrored(columns, width))


def translate_y(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Take each pixel from `sign · value · height` further down, to the nearest pixel."""
    return _transposed(translate_x(_transposed(images), values, sign=sign))


def crop(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Pad with `round(value)` black pixels all round and cut the image's size at place x, y."""
    across = _padded_window(images.shape[3], values, x)
    down = _padded_window(images.shape[2], values, y)
    cut = _take(images, down[0], across[0])
    inside = down[1][:, None, :, None] & across[1][:, None, None, :]
    return cut.masked_fill_(~inside, 0)


def reflect_crop(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Crop like `crop`, but from an image that is padded by its reflection."""
    down, across = (
        mirrored(_window(length, values, place), length)
        for length, place in zip(images.shape[2:], (y, x), strict=True)
    )
    return _take(images, down, across)


def scale_crop(
    images: Tensor, values: Tensor, area: Tensor, aspect: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """Cut a box of area share `value + 0.01 · area` and resize it to the image's size.

    Its width over height is `¾ · (16/9)^aspect`, from 3/4 to 4/3, or as close as fits.
    """
    return _cropped("scale_crop", images, values, area, aspect, x, y)


def resized_crop(
    images: Tensor, values: Tensor, area: Tensor, aspect: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """Crop like `scale_crop`, but a box of area share `value + (1 − value) · area`."""
    return _cropped("resized_crop", images, values, area, aspect, x, y)


def _cropped(
    name: str, images: Tensor, values: Tensor, area: Tensor, aspect: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    height, width = images.shape[2:]
    shares = CROP_SHARES[name](values, area)
    return resize(images, boxes_of(crop_box, width, height, shares, aspect, x, y), (height, width))


def flipping(crop: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a kernel that crops and then mirrors images left to right if their `flip` is 1."""

    def kernel(images: Tensor, values: Tensor, flip: Tensor, **place: Tensor) -> Tensor:
        cropped = crop(images, values, **place)
        return torch.where((flip == 1)[:, None, None, None], cropped.flip(3), cropped)

    kernel.__name__ = f"{crop.__name__}_flip"
    return kernel


def zoom(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Cut a box of share `value` of each side at place x, y and resize it to the image's size."""
    height, width = images.shape[2:]
    return resize(images, boxes_of(zoomed_box, width, height, values, x, y), (height, width))


def flip(images: Tensor, values: Tensor) -> Tensor:
    """Mirror left to right."""
    return images.flip(3).contiguous()


def quarter_turn(images: Tensor, values: Tensor) -> Tensor:
    """Turn by `round(value)` quarter turns counter-clockwise; the images must be square."""
    turns = torch.remainder(torch.round(values), 4)
    height, width = images.shape[2:]
    wanted = sorted(map(int, set(turns.tolist()) - {0.0}))
    if height != width and any(turn % 2 for turn in wanted):
        raise RelookError(
            f"quarter_turn: expected square images for an odd number of quarter turns, got "
            f"{height}×{width} (height × width); crop them square or use half turns"
        )
    turned = images.clone(memory_format=torch.contiguous_format)
    for turn in wanted:
        picked = (turns == turn)[:, None, None, None]
        turned = torch.where(picked, torch.rot90(images, turn, (2, 3)), turned)
    return turned


def cutout(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Blacken a square of side `round(value · width)` around the pixel that x and y name.

    Sides half-way between integers go to the even one, as in Python's `round`; a square of even
    side reaches one pixel further to the left of (and above) its centre than to the right.
    """
    height, width = images.shape[2:]
    across, down = covered(width, x, values * width), covered(height, y, values * width)
    hidden = _within(height, *down)[:, None, :, None] & _within(width, *across)[:, None, None, :]
    return images.masked_fill(hidden, 0)


def resize(images: Tensor, boxes: Sequence[Box], size: tuple[int, int]) -> Tensor:
    """Resize one box of each image to `size` (height, width), as Pillow's resize(BICUBIC) does.

    Bicubic with a = −0.5, antialiased, in Pillow's fixed point: first across, then down, with
    uint8 in between. Pixels outside the box play no part. (Pillow 13 goes down first where the
    height shrinks most; the transforms never shrink.)
    """
    if not boxes:
        return images.new_empty((0, images.shape[1], *size))
    across = _resize_axis(images, 3, [(box.left, box.width) for box in boxes], size[1])
    return _resize_axis(across, 2, [(box.top, box.height) for box in boxes], size[0])


def _resize_axis(images: Tensor, axis: int, spans: list[tuple[int, int]], size: int) -> Tensor:
    """Resize spans (start, length) of an axis to `size`, one for each image."""
    spans = spans[:1] if len(set(spans)) == 1 else spans
    taps = [resize_taps(length, size) for _, length in spans]
    along = (-1, 1, 1, size) if axis == 3 else (-1, 1, size, 1)
    shape = [*images.shape[:axis], size, *images.shape[axis + 1 :]]
    total = torch.full(shape, 1 << (BITS - 1), dtype=torch.int32, device=images.device)
    for tap in range(max(len(weights) for _, weights in taps)):
        # Past the box the weight is zero; the index only has to be valid.
        index = [
            start + np.minimum(first + tap, length - 1)
            for (start, length), (first, _) in zip(spans, taps, strict=True)
        ]
        weight = [w[tap] if tap < len(w) else np.zeros(size, np.int32) for _, w in taps]
        where, factor = (
            torch.from_numpy(np.stack(each)).to(images.device).view(along)
            for each in (index, weight)
        )
        total += images.gather(axis, where.expand(shape)).to(torch.int32).mul_(factor)
    return (total >> BITS).clamp_(0, 255).to(torch.uint8)


def _padded_window(length: int, padding: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pixels an axis of the window shows, and which of them exist: `[n, length]`."""
    pixels = _window(length, padding, place)
    return pixels.clamp(0, length - 1), (pixels >= 0) & (pixels < length)


def _window(length: int, padding: Tensor, place: Tensor) -> Tensor:
    """Return the pixels that an axis of the window shows, in image coordinates: `[n, length]`."""
    offset = crop_offset(padding, place).to(torch.int64)
    return torch.arange(length, device=place.device) + offset[:, None]


def crop_offset(padding: Numbers, place: Numbers) -> Numbers:
    """Return the start of a window of the padded image, in whole image coordinates."""
    pad: Numbers = padding.round().clip(0.0, _FAR)
    return (place * (2 * pad + 1) // 1).clip(max=2 * pad) - pad


def whole_shift(share: Numbers, length: int) -> Numbers:
    """Return a translation by a share of the length in whole pixels."""
    return (share * length + 0.5).clip(-_FAR, _FAR) // 1


def covered(length: int, place: Numbers, side: Numbers) -> tuple[Numbers, Numbers]:
    """Return the start and end of a square along an axis, in whole numbers."""
    side = side.round().clip(0, _LARGEST_SIDE)
    start = (place * length // 1).clip(0, length - 1) - side // 2
    return start, start + side


def _within(length: int, start: Tensor, stop: Tensor) -> Tensor:
    """Return which pixels of an axis lie in a square: bool `[n, length]`."""
    pixels = torch.arange(length, dtype=torch.float64, device=start.device)
    return (pixels >= start[:, None]) & (pixels < stop[:, None])


def rotation(degrees: float, width: int, height: int) -> list[float]:
    """Return the six coefficients that Image.rotate hands to Image.transform."""
    angle = -math.radians(degrees % 360.0)
    # Pillow rounds to fifteen digits, which makes quarter turns exact.
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return [cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y]


def rotations(degrees: Tensor, width: int, height: int) -> Tensor:
    """Return the coefficients of each rotation, float64 `[n, 6]`; equal ones are computed once."""
    angles = degrees.tolist()
    places = {angle: place for place, angle in enumerate(dict.fromkeys(angles))}
    rows = [rotation(angle, width, height) for angle in places]
    made = torch.tensor(rows, dtype=torch.float64, device=degrees.device).view(-1, 6)
    return made if len(made) == len(angles) else made[[places[angle] for angle in angles]]


def rotated_places(degrees: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the x and y from which a rotation takes each pixel, float64 `[n, h, w]`."""
    a, b, c, d, e, f = rotations(degrees, width, height)[:, :, None, None].unbind(1)
    x, y = _centres(width, degrees), _centres(height, degrees)[:, None]
    return a * x + b * y + c, d * x + e * y + f


def sheared_places(slope: Tensor, edge: Tensor, height: int, width: int) -> Tensor:
    """Return the x from which a shear takes each pixel, float64 `[n, h, w]`."""
    y = _centres(height, slope)[:, None]
    distance = torch.where((edge == 1)[:, None, None], height - y, y)
    return _centres(width, slope) + slope[:, None, None] * distance


def _centres(length: int, like: Tensor) -> Tensor:
    return torch.arange(length, dtype=torch.float64, device=like.device) + 0.5


def _transposed(images: Tensor) -> Tensor:
    return images.transpose(2, 3).contiguous()


def _take_columns(images: Tensor, columns: Tensor) -> Tensor:
    """Pick columns `[n, w]`, different ones for each image."""
    return images.gather(3, columns[:, None, None, :].expand(images.shape))


def _take(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Pick rows `[n, h]` and columns `[n, w]`, different ones for each image."""
    return _take_columns(_transposed(_take_columns(_transposed(images), rows)), columns)


def mirrored(index: Tensor, length: int) -> Tensor:
    """Fold whole numbers (int64) into 0 … length − 1 by reflection at both ends."""
    folded = torch.remainder(index, 2 * (length - 1))
    return torch.minimum(folded, 2 * (length - 1) - folded)


def cells(coordinate: Tensor) -> tuple[Tensor, Tensor]:
    """Split coordinates into the pixel before them, int64, and the distance to it."""
    position = coordinate.clamp(-_FAR, _FAR) - 0.5
    pixel = torch.floor(position)
    return pixel.to(torch.int64), position - pixel


def _in_parts(warp: Callable[..., Tensor], images: Tensor, *places: Tensor) -> Tensor:
    """Warp runs of images of about `_PART` pixels; places `[n, h, w]`, or `[1, h, w]` for all."""
    if torch.compiler.is_compiling():  # the number of images may be symbolic
        return warp(images, *places)
    warped = torch.empty_like(images, memory_format=torch.contiguous_format)
    size = max(1, _PART // images.shape[1:].numel())
    for start in range(0, len(images), size):
        part = slice(start, start + size)
        warped[part] = warp(images[part], *(place[part] for place in places))
    return warped


def _warp(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sample each image at coordinates x, y: bicubic, mirrored, truncated."""
    height, width = images.shape[2:]
    column, dx = cells(x.flatten(1)[:, None])
    row, dy = cells(y.flatten(1)[:, None])
    wide = _widened(images)
    row_start = _reflected(height, images.device) * wide.shape[3]
    row, column = torch.remainder(row, 2 * (height - 1)), torch.remainder(column, 2 * (width - 1))
    flat = wide.flatten(2)
    rows = []
    for i in range(4):
        start = (row_start[i:].take(row) + column).expand(*images.shape[:2], -1)
        rows.append(_cubic([flat[:, :, j:].gather(2, start) for j in range(4)], dx))
    return _cubic(rows, dy).clamp_(0, 255).to(torch.uint8).view(images.shape)


def _warp_rows(images: Tensor, x: Tensor) -> Tensor:
    """Sample each row at the coordinates x: bicubic, mirrored, truncated."""
    column, dx = cells(x[:, None])
    wide = _widened(images)
    start = torch.remainder(column, 2 * (images.shape[3] - 1)).expand(images.shape)
    taps = [wide[:, :, :, j:].gather(3, start) for j in range(4)]
    return _cubic(taps, dx).clamp_(0, 255).to(torch.uint8)


def _cubic(v: list[Tensor], d: Tensor) -> Tensor:
    """Interpolate between v[1] and v[2] with a = −1, in Pillow's order of operations."""
    p2 = v[2] - v[0]
    p3 = (v[0] - v[1]).mul_(2).add_(v[2]).sub_(v[3])
    p4 = (v[1] - v[0]).sub_(v[2]).add_(v[3])
    return (d * p4).add_(p3).mul_(d).add_(p2).mul_(d).add_(v[1])


def _widened(images: Tensor) -> Tensor:
    """Return each row continued by reflection, over every tap of one period; int16."""
    columns = _reflected(images.shape[3], images.device)
    return images.to(torch.int16).index_select(3, columns)


def _reflected(length: int, device: torch.device) -> Tensor:
    """Return the pixels from −1 over one whole period to period + 1: every cubic's four taps."""
    return mirrored(torch.arange(-1, 2 * length, device=device), length)
