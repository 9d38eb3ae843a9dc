"""Geometric transforms: what Pillow's transform, rotate and resize do, on uint8 batches.

Warps see the image in a surround mirrored without repeating the edge (period 2(n − 1)), at
any distance. Coordinates are Pillow's: pixel i covers [i, i + 1), its centre is i + ½.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from relook.errors import RelookError
from relook.transforms.checks import checked

# Far outside every image; it keeps coordinates and paddings within exact integers.
_FAR = 2.0**31
# Pillow's fixed point for 8-bit resizing.
_RESIZE_BITS = 22
_RESIZE_SUPPORT = 2.0
# Warps work on so many pixels at a time: their float64 intermediates then stay in the cache.
_PART = 1 << 16


@checked
def rotate(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Turn by `sign · value` degrees counter-clockwise about the centre."""
    height, width = images.shape[2:]
    rows = [rotation(angle, width, height) for angle in (sign * values).tolist()]
    matrix = torch.tensor(rows, dtype=torch.float64, device=images.device).view(-1, 6, 1, 1)
    a, b, c, d, e, f = matrix.unbind(1)
    x, y = pixel_centres(images)
    return _warp(images, a * x + b * y + c, d * x + e * y + f)


@checked
def shear_x(images: Tensor, values: Tensor, sign: Tensor, edge: Tensor) -> Tensor:
    """Slide rows by `sign · value` pixels a row, counted from the top (edge 0) or bottom (1)."""
    x, y = pixel_centres(images)
    return _warp_rows(images, _sheared(x, y, sign * values, edge, images.shape[2]))


@checked
def shear_y(images: Tensor, values: Tensor, sign: Tensor, edge: Tensor) -> Tensor:
    """Slide columns by `sign · value` pixels a column, from the left (edge 0) or right (1)."""
    return _transposed(shear_x(_transposed(images), values, sign=sign, edge=edge))


@checked
def translate_x(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Take each pixel from `sign · value · width` further right, to the nearest pixel.

    Half-way shifts go right (up in number), as in Pillow's NEAREST.
    """
    width = images.shape[3]
    shift = torch.floor((sign * values * width + 0.5).clamp(-_FAR, _FAR))
    columns = torch.arange(width, dtype=torch.float64, device=images.device) + shift[:, None]
    return _take_columns(images, _mirror(columns, width))


@checked
def translate_y(images: Tensor, values: Tensor, sign: Tensor) -> Tensor:
    """Take each pixel from `sign · value · height` further down, to the nearest pixel."""
    return _transposed(translate_x(_transposed(images), values, sign=sign))


@checked
def crop(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Pad with `round(value)` black pixels all round and cut the image's size at place x, y."""
    across = _padded_window(images.shape[3], values, x)
    down = _padded_window(images.shape[2], values, y)
    cut = _take_columns(_transposed(_take_columns(_transposed(images), down[0])), across[0])
    inside = down[1][:, None, :, None] & across[1][:, None, None, :]
    return cut.masked_fill_(~inside, 0)


@checked
def crop_flip(images: Tensor, values: Tensor, x: Tensor, y: Tensor, flip: Tensor) -> Tensor:
    """Crop as `crop` does, then mirror left to right where flip is 1."""
    return _flip_where(crop(images, values, x=x, y=y), flip)


@checked
def scale_crop(
    images: Tensor, values: Tensor, area: Tensor, aspect: Tensor, x: Tensor, y: Tensor
) -> Tensor:
    """Cut a box of area share `value + 0.01 · area` and resize it to the image's size.

    Its width over its height is `¾ · (16/9)^aspect`: from 3/4 to 4/3.
    """
    height, width = images.shape[2:]
    draws = torch.stack([values, area, aspect, x, y], 1).tolist()
    return resize(images, [scaled_box(width, height, *row) for row in draws], (height, width))


@checked
def scale_crop_flip(
    images: Tensor,
    values: Tensor,
    area: Tensor,
    aspect: Tensor,
    x: Tensor,
    y: Tensor,
    flip: Tensor,
) -> Tensor:
    """Crop and resize as `scale_crop` does, then mirror left to right where flip is 1."""
    return _flip_where(scale_crop(images, values, area=area, aspect=aspect, x=x, y=y), flip)


@checked
def zoom(images: Tensor, values: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Cut a box of share `value` of each side at place x, y and resize it to the image's size."""
    height, width = images.shape[2:]
    boxes = [
        placed_box(width, height, share * width, share * height, across, down)
        for share, across, down in torch.stack([values, x, y], 1).tolist()
    ]
    return resize(images, boxes, (height, width))


@checked
def flip(images: Tensor, values: Tensor) -> Tensor:
    """Mirror left to right."""
    return images.flip(3).contiguous()


@checked
def quarter_turn(images: Tensor, values: Tensor) -> Tensor:
    """Turn by `round(value)` quarter turns counter-clockwise; the images must be square."""
    turns = torch.remainder(torch.round(values), 4)
    height, width = images.shape[2:]
    if height != width and bool((turns % 2 == 1).any()):
        raise RelookError(
            f"quarter_turn: expected square images for an odd number of quarter turns, got "
            f"{height}×{width} (height × width); crop them square or use half turns"
        )
    turned = images.clone(memory_format=torch.contiguous_format)
    for k in (1, 2, 3):
        picked = turns == k
        if bool(picked.any()):
            turned[picked] = torch.rot90(images[picked], k, (2, 3))
    return turned


@dataclass(frozen=True)
class Box:
    """A box of whole pixels: left and top edge, width and height."""

    left: int
    top: int
    width: int
    height: int


def resize(images: Tensor, boxes: list[Box], size: tuple[int, int]) -> Tensor:
    """Resize one box of each image to `size` (height, width), as Pillow's resize(BICUBIC) does.

    Bicubic with a = −0.5, antialiased, in Pillow's fixed point: first across, then down, with
    uint8 in between. Pixels outside the box play no part. (Pillow 13 goes down first where the
    height shrinks and the width does not; the transforms never shrink.)
    """
    if not boxes:
        return images.new_empty((0, images.shape[1], *size))
    spans = torch.tensor([(box.left, box.width, box.top, box.height) for box in boxes])
    left, width, top, height = spans.to(images.device).unbind(1)
    return resize_axis(resize_axis(images, 3, left, width, size[1]), 2, top, height, size[0])


def resize_axis(
    images: Tensor, axis: int, start: Tensor, length: Tensor, size: int, taps: int | None = None
) -> Tensor:
    """Resize the pixels start … start + length of an axis to `size`; one span for each image.

    `taps` is how many pixels a new one comes from at most; None looks it up.
    """
    first, weights = _resize_weights(length, size, taps)
    last = (length - 1)[:, None]
    shape = list(images.shape)
    shape[axis] = size
    total = torch.full(shape, 1 << (_RESIZE_BITS - 1), dtype=torch.int32, device=images.device)
    for tap, weight in enumerate(weights):
        # Past the box the weight is zero; the index only has to be a valid one.
        index = start[:, None] + torch.minimum(first + tap, last)
        taken = images.gather(axis, _along(index, axis).expand(shape)).to(torch.int32)
        total += taken.mul_(_along(weight, axis))
    return (total >> _RESIZE_BITS).clamp_(0, 255).to(torch.uint8)


def _resize_weights(
    length: Tensor, size: int, taps: int | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the first tap of each output pixel, `[n, size]`, and the taps' int32 weights."""
    length = length.to(torch.float64)[:, None]
    scale = length / size
    reach = scale.clamp(min=1.0)
    centre = (torch.arange(size, dtype=torch.float64, device=length.device) + 0.5) * scale
    first = torch.trunc(centre - _RESIZE_SUPPORT * reach + 0.5).clamp(min=0.0)
    end = torch.minimum(torch.trunc(centre + _RESIZE_SUPPORT * reach + 0.5), length)
    taps = int((end - first).max()) if taps is None else taps
    kernel = []
    for tap in range(taps):
        weight = _resize_kernel((first + tap - centre + 0.5) * (1.0 / reach))
        kernel.append(torch.where(first + tap < end, weight, 0.0))
    # One by one and in order, as Pillow adds them up.
    total = torch.zeros_like(centre)
    for weight in kernel:
        total = total + weight
    return first.to(torch.int64), [_fixed_point(weight / total) for weight in kernel]


def _fixed_point(weight: Tensor) -> Tensor:
    """Round to Pillow's fixed point, half-way cases away from zero; int32."""
    scaled = weight * (1 << _RESIZE_BITS)
    return (scaled + torch.where(scaled < 0, -0.5, 0.5)).to(torch.int32)


def _resize_kernel(distance: Tensor) -> Tensor:
    """Return the cubic kernel with a = −0.5."""
    t = distance.abs()
    near = (1.5 * t - 2.5) * t * t + 1.0
    far = (((t - 5.0) * t + 8.0) * t - 4.0) * -0.5
    return torch.where(t < 1.0, near, torch.where(t < 2.0, far, 0.0))


def _along(per_image: Tensor, axis: int) -> Tensor:
    """Give `[n, length]` the shape of images, with length along `axis`."""
    return per_image[:, None, None, :] if axis == 3 else per_image[:, None, :, None]


def scaled_box(
    width: int, height: int, share: float, area: float, aspect: float, x: float, y: float
) -> Box:
    """Return the box of `scale_crop` for one image."""
    pixels = width * height * min(1.0, share + 0.01 * area)
    ratio = 0.75 * (16 / 9) ** aspect
    return placed_box(width, height, math.sqrt(pixels * ratio), math.sqrt(pixels / ratio), x, y)


def placed_box(
    width: int, height: int, box_width: float, box_height: float, x: float, y: float
) -> Box:
    """Round a box to whole pixels within the image and place it: 0 left (top), 1 right."""
    across = round(min(max(box_width, 1.0), width))
    down = round(min(max(box_height, 1.0), height))
    left = min(math.floor(x * (width - across + 1)), width - across)
    top = min(math.floor(y * (height - down + 1)), height - down)
    return Box(left, top, across, down)


def _flip_where(images: Tensor, flip: Tensor) -> Tensor:
    return torch.where((flip == 1)[:, None, None, None], images.flip(3), images)


def _padded_window(length: int, padding: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return which pixel an axis of the window shows, and whether it is one: `[n, length]`."""
    pad = torch.round(padding).clamp(0.0, _FAR)
    offset = torch.minimum(torch.floor(place * (2 * pad + 1)), 2 * pad)
    pixels = torch.arange(length, device=place.device) + (offset - pad).to(torch.int64)[:, None]
    return pixels.clamp(0, length - 1), (pixels >= 0) & (pixels < length)


def rotation(degrees: float, width: int, height: int) -> list[float]:
    """Return the six coefficients that Image.rotate hands to Image.transform."""
    angle = -math.radians(degrees % 360.0)
    # Pillow's fifteen digits make quarter turns exact.
    cos, sin = round(math.cos(angle), 15), round(math.sin(angle), 15)
    x, y = width / 2, height / 2
    return [cos, sin, cos * -x + sin * -y + x, -sin, cos, -sin * -x + cos * -y + y]


def _sheared(along: Tensor, across: Tensor, slope: Tensor, edge: Tensor, length: int) -> Tensor:
    """Return the coordinate `along + slope · across`, `across` counted from the fixed edge."""
    distance = torch.where((edge == 1)[:, None, None], length - across, across)
    return along + slope[:, None, None] * distance


def pixel_centres(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the coordinates of the pixels' centres, x `[1, 1, w]` and y `[1, h, 1]`."""
    height, width = images.shape[2:]
    x = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5
    y = torch.arange(height, dtype=torch.float64, device=images.device) + 0.5
    return x[None, None, :], y[None, :, None]


def _transposed(images: Tensor) -> Tensor:
    return images.transpose(2, 3).contiguous()


def _take_columns(images: Tensor, columns: Tensor) -> Tensor:
    """Pick columns `[n, w]`, other ones for each image."""
    return images.gather(3, columns[:, None, None, :].expand(images.shape))


def _mirror(index: Tensor, length: int) -> Tensor:
    """Fold whole numbers (float64) into 0 … length − 1 by reflection at both ends."""
    folded = _wrap(index, 2 * (length - 1))
    return torch.minimum(folded, 2 * (length - 1) - folded)


def _wrap(index: Tensor, period: int) -> Tensor:
    """Return whole numbers (float64, within ±2³¹) modulo the period, as int64."""
    return (index - period * torch.floor(index / period)).to(torch.int64)


def _cells(coordinate: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Split coordinates into the pixel before them, modulo the period, and the distance to it."""
    position = coordinate.clamp(-_FAR, _FAR) - 0.5
    pixel = torch.floor(position)
    return _wrap(pixel, 2 * (length - 1)), position - pixel


def _reflected(length: int, device: torch.device) -> Tensor:
    """Return the pixels from −1 over one whole period to period + 1: every cubic's four taps."""
    return _mirror(torch.arange(-1, 2 * length, dtype=torch.float64, device=device), length)


def _cubic(v: list[Tensor], d: Tensor) -> Tensor:
    """Interpolate between v[1] and v[2] with a = −1, in Pillow's order of operations."""
    p2 = v[2] - v[0]
    p3 = (v[0] - v[1]).mul_(2).add_(v[2]).sub_(v[3])
    p4 = (v[1] - v[0]).sub_(v[2]).add_(v[3])
    return (d * p4).add_(p3).mul_(d).add_(p2).mul_(d).add_(v[1])


def _warp(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sample each image at coordinates x, y, `[n, h, w]`: bicubic, mirrored, truncated."""
    warped = torch.empty_like(images, memory_format=torch.contiguous_format)
    for part in _parts(images):
        warped[part] = warp_part(images[part], x[part], y[part])
    return warped


def warp_part(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Sample a few images at coordinates `[n, h, w]`, or all at the same `[1, h, w]`."""
    column, dx = _cells(x.flatten(1)[:, None], images.shape[3])
    row, dy = _cells(y.flatten(1)[:, None], images.shape[2])
    wide = _widened(images)
    row_start = _reflected(images.shape[2], images.device) * wide.shape[3]
    flat = wide.flatten(2)
    rows = []
    for i in range(4):
        start = (row_start[i:].take(row) + column).expand(*images.shape[:2], -1)
        taps = [flat[:, :, j:].gather(2, start) for j in range(4)]
        rows.append(_cubic(taps, dx))
    return _cubic(rows, dy).clamp_(0, 255).to(torch.uint8).view(images.shape)


def _warp_rows(images: Tensor, x: Tensor) -> Tensor:
    """Sample each row at the coordinates x, `[n, h, w]`: bicubic, mirrored, truncated."""
    warped = torch.empty_like(images, memory_format=torch.contiguous_format)
    for part in _parts(images):
        warped[part] = warp_rows_part(images[part], x[part])
    return warped


def warp_rows_part(images: Tensor, x: Tensor) -> Tensor:
    """Sample the rows of a few images at coordinates `[n, h, w]`, or all at `[1, h, w]`."""
    column, dx = _cells(x[:, None], images.shape[3])
    wide = _widened(images)
    start = column.expand(images.shape)
    taps = [wide[:, :, :, j:].gather(3, start) for j in range(4)]
    return _cubic(taps, dx).clamp_(0, 255).to(torch.uint8)


def _widened(images: Tensor) -> Tensor:
    """Return each row with its mirror image, over every tap of one period; int16."""
    columns = _reflected(images.shape[3], images.device)
    return images.to(torch.int16).index_select(3, columns)


def _parts(images: Tensor) -> list[slice]:
    """Cut a batch into runs of images of about `_PART` pixels."""
    size = max(1, _PART // images.shape[1:].numel())
    return [slice(i, i + size) for i in range(0, len(images), size)]
