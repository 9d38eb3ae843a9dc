"""Colour: runs of point transforms, merged into one look-up table, and blends with neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relook.transforms.apply import Operation, Pixels, Shape, level_tables
from relook.transforms.color import cut_off, factors
from relook.transforms.cpu.instructions import (
    LANES,
    as_level,
    compiled,
    f32,
    helper,
    i32,
    look_up_64,
    read,
    u8,
    write,
)
from relook.transforms.steps import AppliedStep, Floats

# The kinds of a run's steps. Their values: the table's index, the factor, the number of pixels cut
# off, none.
_TABLE, _CONTRAST, _AUTOCONTRAST, _EQUALIZE = 0, 1, 2, 3
_LEVELS = 256
# n // 26 for n below 6,650 (13 · 255 · 2 + 13 is less): 2 · total + 13 rounds total / 13.
_MULTIPLIER, _SHIFT = 10083, 18


@dataclass(frozen=True)
class PointStep:
    """A point transform: its code, values `[n]`, and tables `[k, 256]` if it has any."""

    code: int
    values: Floats
    tables: Pixels = field(default_factory=lambda: np.empty((0, _LEVELS), np.uint8))

    @staticmethod
    def merged(run: Sequence[PointStep]) -> Operation:
        """Merge consecutive point transforms into one operation."""
        steps: list[PointStep] = []
        for step in run:
            if steps and len(steps[-1].tables) == len(step.tables) == 1:
                steps[-1] = PointStep(_TABLE, step.values, step.tables[:, steps[-1].tables[0]])
            else:
                steps.append(step)
        codes = np.array([step.code for step in steps], np.int64)
        before = np.cumsum([0, *(len(step.tables) for step in steps[:-1])])
        shifted = [
            step.values + n * (step.code == _TABLE)
            for step, n in zip(steps, before.tolist(), strict=True)
        ]
        tables = np.concatenate([step.tables for step in steps])
        light = codes.tolist() == [_TABLE]
        return Operation(_apply_points, (np.stack(shifted, 1),), (codes, tables), light)


def by_level(step: AppliedStep, shape: Shape) -> PointStep | None:
    """Return a transform that depends only on grey levels, with its kernel's look-up tables."""
    values, which = step.values[:1], np.zeros(len(step.values))
    if (step.values != values).any():
        values, places = np.unique(step.values, return_inverse=True)
        which = places.astype(np.float64)
    tables = level_tables(step.transform, values.tolist())
    return None if (tables == np.arange(_LEVELS)).all() else PointStep(_TABLE, which, tables)


def contrast(step: AppliedStep, shape: Shape) -> PointStep:
    """Return the step of `contrast`."""
    values, _ = step.tensors()
    return PointStep(_CONTRAST, factors(values).double().numpy())


def autocontrast(step: AppliedStep, shape: Shape) -> PointStep:
    """Return the step of `autocontrast`."""
    values, _ = step.tensors()
    return PointStep(_AUTOCONTRAST, cut_off(values, shape[2] * shape[3]).numpy())


def equalize(step: AppliedStep, shape: Shape) -> PointStep:
    """Return the step of `equalize`."""
    return PointStep(_EQUALIZE, step.values)


def color(step: AppliedStep, shape: Shape) -> Operation | None:
    """Return the operation of `color`; None for grey images, which it does not change."""
    values, _ = step.tensors()
    return Operation(_color, (factors(values).numpy(),)) if shape[1] == 3 else None


def sharpness(step: AppliedStep, shape: Shape) -> Operation:
    """Return the operation of `sharpness`."""
    values, _ = step.tensors()
    return Operation(_sharpness, (factors(values).numpy(),))


@compiled
def _apply_points(images: Any, out: Any, values: Any, codes: Any, given: Any) -> None:
    """Apply the transforms `codes` in order; values float64 `[n, step]`, tables `[k, 256]`."""
    n, channels, height, width = images.shape
    pixels = height * width
    tables = np.empty((channels, _LEVELS), np.uint8)
    counts = np.empty((channels, _LEVELS), np.int64)
    for i in range(n):
        base = i * channels * pixels
        if len(codes) == 1 and codes[0] == _TABLE:
            _look_up(images, base, channels * pixels, given, np.int64(values[i, 0]), out)
            continue
        counted = False
        for channel in range(channels):
            for g in range(_LEVELS):
                tables[channel, g] = g
        for step in range(len(codes)):
            code, value = codes[step], values[i, step]
            if code == _CONTRAST:
                if step > 0:
                    for channel in range(channels):
                        _look_up(images, base + channel * pixels, pixels, tables, channel, out)
                mean = _mean_luma(images if step == 0 else out, i)
                table = _contrasted(f32(value), f32(mean))
                for channel in range(channels):
                    _then(tables[channel], table)
            elif code == _TABLE:
                for channel in range(channels):
                    _then(tables[channel], given[np.int64(value)])
            else:
                if not counted:
                    _count(images, i, counts)
                    counted = True
                for channel in range(channels):
                    seen = (
                        counts[channel] if step == 0 else _moved(counts[channel], tables[channel])
                    )
                    if code == _AUTOCONTRAST:
                        _then(tables[channel], _stretched(value, seen))
                    else:
                        _then(tables[channel], _equalized(seen, pixels))
        for channel in range(channels):
            _look_up(images, base + channel * pixels, pixels, tables, channel, out)


@helper
def _then(table: Any, after: Any) -> None:
    for g in range(_LEVELS):
        table[g] = after[table[g]]


@helper
def _contrasted(factor: Any, mean: Any) -> Any:
    table = np.empty(_LEVELS, np.uint8)
    for g in range(_LEVELS):
        table[g] = as_level((f32(g) - mean) * factor + mean)
    return table


@helper
def _stretched(cut: float, counts: Any) -> Any:
    table = np.empty(_LEVELS, np.uint8)
    low, before = 0, counts[0]
    while before <= cut and low < 255:
        low += 1
        before += counts[low]
    high, after = 255, counts[255]
    while after <= cut and high > 0:
        high -= 1
        after += counts[high]
    scale = 255.0 / max(high - low, 1)
    for g in range(_LEVELS):
        table[g] = as_level(g * scale + -low * scale) if high > low else u8(g)
    return table


@helper
def _equalized(counts: Any, pixels: int) -> Any:
    table = np.empty(_LEVELS, np.uint8)
    brightest = 0
    for g in range(_LEVELS):
        if counts[g] > 0:
            brightest = g
    step = (pixels - counts[brightest]) // 255
    darker = 0
    for g in range(_LEVELS):
        table[g] = min((step // 2 + darker) // step, 255) if step > 0 else g
        darker += counts[g]
    return table


@helper
def _count(images: Any, i: int, counts: Any) -> None:
    """Count each channel's grey levels, in four tables so that equal neighbours cause no stall."""
    _, channels, height, width = images.shape
    pixels = height * width
    parts = np.empty(4 * _LEVELS, np.int32)
    for channel in range(channels):
        for g in range(4 * _LEVELS):
            parts[g] = 0
        base = (i * channels + channel) * pixels
        for p in range(0, pixels - 3, 4):
            for part in range(4):
                parts[part * _LEVELS + np.int64(read(images, base + p + part, 32))] += 1
        for p in range(pixels - pixels % 4, pixels):
            parts[np.int64(read(images, base + p, 32))] += 1
        for g in range(_LEVELS):
            counts[channel, g] = (
                parts[g] + parts[_LEVELS + g] + parts[2 * _LEVELS + g] + parts[3 * _LEVELS + g]
            )


@helper
def _moved(counts: Any, table: Any) -> Any:
    moved = np.zeros(_LEVELS, np.int64)
    for g in range(_LEVELS):
        moved[table[g]] += counts[g]
    return moved


@helper
def _look_up(images: Any, base: int, count: int, tables: Any, which: int, out: Any) -> None:
    """Map `count` bytes from `base` on through one of the tables `[k, 256]`."""
    for p in range(base, base + count - LANES + 1, LANES):
        look_up_64(tables, which * _LEVELS, images, p, out)
    for p in range(base + count - count % LANES, base + count):
        grey = np.int64(read(images, p, 34))
        write(out, p, read(tables, which * _LEVELS + grey, 34), 34)


@helper
def _mean_luma(images: Any, i: int) -> Any:
    """Return the mean of Pillow's "L" conversion of an image, rounded."""
    _, channels, height, width = images.shape
    pixels = height * width
    base = i * channels * pixels
    total = np.int64(0)
    for p in range(base, base + pixels):
        if channels == 1:
            total += read(images, p, 39)
        else:
            red, green = i32(read(images, p, 39)), i32(read(images, p + pixels, 39))
            blue = i32(read(images, p + 2 * pixels, 39))
            luma = i32(i32(red * 19595) + i32(green * 38470) + i32(blue * 7471))
            total += i32(i32(luma + 0x8000) >> 16)
    return math.floor(total / pixels + 0.5)


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
    """Write one inner row; `sums` is a buffer for the sums of three pixels in a column."""
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
