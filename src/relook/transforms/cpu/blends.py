"""Colour and sharpness: an image moved away from, or towards, a degenerate copy of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from relook.transforms.apply import Operation, Shape
from relook.transforms.color import factors
from relook.transforms.cpu.memory import as_level, compiled, f32, helper, i32, read, write
from relook.transforms.steps import AppliedStep

# n // 26 for n below 6,650 (13 · 255 · 2 + 13 is less): 2 · total + 13 rounds total / 13.
_MULTIPLIER, _SHIFT = 10083, 18


def color(step: AppliedStep, shape: Shape) -> Operation | None:
    """Return the blend of `color`; a grey image stays as it is."""
    values, _ = step.tensors()
    return Operation(_color, (factors(values).numpy(),)) if shape[1] == 3 else None


def sharpness(step: AppliedStep, shape: Shape) -> Operation:
    """Return the blend of `sharpness`."""
    values, _ = step.tensors()
    return Operation(_sharpness, (factors(values).numpy(),))


@compiled
def _color(images: Any, out: Any, factors: Any) -> None:
    """Blend each colour image with its grey copy; factors float32 `[n]`."""
    n, _, height, width = images.shape
    pixels = height * width
    for i in range(n):
        factor, base = factors[i], 3 * i * pixels
        for p in range(base, base + pixels):
            red, green = read(images, p, 41), read(images, p + pixels, 41)
            blue = read(images, p + 2 * pixels, 41)
            weighted = i32(i32(19595 * i32(red)) + i32(38470 * i32(green)))
            luma = f32(i32(i32(weighted + i32(7471 * i32(blue)) + 0x8000) >> 16))
            write(out, p, as_level((f32(red) - luma) * factor + luma), 41)
            write(out, p + pixels, as_level((f32(green) - luma) * factor + luma), 41)
            write(out, p + 2 * pixels, as_level((f32(blue) - luma) * factor + luma), 41)


@compiled
def _sharpness(images: Any, out: Any, factors: Any) -> None:
    """Blend each image with Pillow's SMOOTH of it; the outermost pixels stay as they are."""
    n, channels, height, width = images.shape
    sums = np.empty(width, np.int32)
    for i in range(n):
        for channel in range(channels):
            first = (i * channels + channel) * height
            for y in range(height):
                base = (first + y) * width
                if y in (0, height - 1):
                    for x in range(base, base + width):
                        write(out, x, read(images, x, 42), 42)
                else:
                    _sharpened_row(images, out, base, width, factors[i], sums)


@helper
def _sharpened_row(images: Any, out: Any, base: int, width: int, factor: Any, sums: Any) -> None:
    """Write one inner row; `sums` is room for the sums of three pixels, one above the other."""
    for x in range(width):
        above, here = read(images, base - width + x, 43), read(images, base + x, 43)
        below = read(images, base + width + x, 43)
        write(sums, x, i32(i32(above) + i32(here) + i32(below)), 43)
    for x in range(1, width - 1):
        here = read(images, base + x, 44)
        three = i32(read(sums, x - 1, 44) + read(sums, x, 44) + read(sums, x + 1, 44))
        doubled = i32(i32(2 * i32(three + 4 * i32(here))) + 13)
        smooth = f32(i32(i32(doubled * _MULTIPLIER) >> _SHIFT))
        write(out, base + x, as_level((f32(here) - smooth) * factor + smooth), 44)
    write(out, base, read(images, base, 45), 45)
    write(out, base + width - 1, read(images, base + width - 1, 45), 45)
