"""Runs of point transforms, merged into one look-up table for each image and channel."""

from __future__ import annotations

import math
from enum import IntEnum
from typing import Any

import numpy as np

from relook.transforms.cpu.memory import (
    compiled,
    f32,
    helper,
    i32,
    level32,
    level64,
    read,
    u8,
    write,
)
from relook.transforms.cpu.x86 import LANES, look_up_64


class Point(IntEnum):
    """The transforms of a run; their value is what `apply_points` takes."""

    INVERT = 0
    SOLARIZE = 1
    SOLARIZE_ADD = 2
    POSTERIZE = 3
    BRIGHTNESS = 4
    CONTRAST = 5
    AUTOCONTRAST = 6
    EQUALIZE = 7


# Plain numbers: numba compiles them in.
_INVERT, _SOLARIZE, _SOLARIZE_ADD, _POSTERIZE = 0, 1, 2, 3
_BRIGHTNESS, _CONTRAST, _AUTOCONTRAST = 4, 5, 6
_LEVELS = 256


@compiled
def apply_points(images: Any, out: Any, values: Any, codes: Any) -> None:
    """Apply the transforms `codes` in order; values float64 `[n, step]`.

    A value is the threshold (solarize), the bits (posterize), the factor (brightness,
    contrast) or the number of pixels to cut off (autocontrast).
    """
    n, channels, height, width = images.shape
    pixels = height * width
    tables = np.empty((channels, _LEVELS), np.uint8)
    counts = np.empty((channels, _LEVELS), np.int64)
    for i in range(n):
        if len(codes) == 1 and codes[0] < _AUTOCONTRAST:
            _direct(images, i, out, codes[0], values[i, 0])
            continue
        counted = False
        for channel in range(channels):
            for g in range(_LEVELS):
                tables[channel, g] = g
        for step in range(len(codes)):
            code, value = codes[step], values[i, step]
            if code >= _AUTOCONTRAST:
                if not counted:
                    _count(images, i, counts)
                    counted = True
                for channel in range(channels):
                    seen = (
                        counts[channel] if step == 0 else _moved(counts[channel], tables[channel])
                    )
                    _then(tables[channel], _by_histogram(code, value, seen, pixels))
            else:
                mean = 0.0
                if code == _CONTRAST:
                    if step > 0:
                        _look_up(images, i, tables, out)
                    mean = _mean_luma(images if step == 0 else out, i)
                table = _by_value(code, value, mean)
                for channel in range(channels):
                    _then(tables[channel], table)
        _look_up(images, i, tables, out)


@helper
def _then(table: Any, after: Any) -> None:
    """Apply a second table after the first."""
    for g in range(_LEVELS):
        table[g] = after[table[g]]


@helper
def _by_value(code: int, value: float, mean: float) -> Any:
    """Return the table of a transform that needs no histogram."""
    table = np.empty(_LEVELS, np.uint8)
    unit = 1 << (8 - np.int64(min(max(math.floor(value), 0.0), 8.0)))
    factor, middle = f32(value), f32(mean)
    for g in range(_LEVELS):
        inverse = u8(255 - g)
        solarized = u8(g) if g < value else inverse
        if code == _INVERT:
            table[g] = inverse
        elif code == _SOLARIZE:
            table[g] = solarized
        elif code == _SOLARIZE_ADD:
            table[g] = (g + solarized) // 2
        elif code == _POSTERIZE:
            table[g] = g - g % unit
        else:
            table[g] = level32((f32(g) - middle) * factor + middle)
    return table


@helper
def _by_histogram(code: int, cut: float, counts: Any, pixels: int) -> Any:
    return _stretched(cut, counts) if code == _AUTOCONTRAST else _equalized(counts, pixels)


@helper
def _stretched(cut: float, counts: Any) -> Any:
    """Return autocontrast's table: `cut` pixels or fewer fall off at either end."""
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
        table[g] = level64(g * scale + -low * scale) if high > low else u8(g)
    return table


@helper
def _equalized(counts: Any, pixels: int) -> Any:
    """Return equalize's table."""
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
    """Count each channel's grey levels, in four tables so that equal neighbours do not wait."""
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
    """Return the histogram after a table was applied."""
    moved = np.zeros(_LEVELS, np.int64)
    for g in range(_LEVELS):
        moved[table[g]] += counts[g]
    return moved


@helper
def _look_up(images: Any, i: int, tables: Any, out: Any) -> None:
    """Write image i as its channels' tables have it."""
    _, channels, height, width = images.shape
    pixels = height * width
    for channel in range(channels):
        base = (i * channels + channel) * pixels
        for p in range(0, pixels - LANES + 1, LANES):
            look_up_64(tables, channel * _LEVELS, images, base + p, out)
        for p in range(base + pixels - pixels % LANES, base + pixels):
            grey = np.int64(read(images, p, 34))
            write(out, p, read(tables, channel * _LEVELS + grey, 34), 34)


@helper
def _direct(images: Any, i: int, out: Any, code: int, value: float) -> None:
    """Apply one transform that needs no histogram without a table: in vectors."""
    _, channels, height, width = images.shape
    start, stop = i * channels * height * width, (i + 1) * channels * height * width
    threshold = i32(min(max(math.ceil(value), 0.0), 256.0)) if code != _INVERT else i32(0)
    if code == _POSTERIZE:
        kept = u8(256 - (1 << (8 - np.int64(min(max(math.floor(value), 0.0), 8.0)))))
        for p in range(start, stop):
            write(out, p, u8(read(images, p, 35) & kept), 35)
    elif code == _SOLARIZE_ADD:
        for p in range(start, stop):
            g = i32(read(images, p, 36))
            write(out, p, u8(i32(g + (g if g < threshold else i32(255 - g))) >> 1), 36)
    elif code == _INVERT or (code == _SOLARIZE and threshold == 0):
        for p in range(start, stop):
            write(out, p, u8(read(images, p, 40) ^ u8(255)), 40)
    elif code == _SOLARIZE:
        darkest = u8(threshold - 1)  # of those that stay: bytes are compared with bytes
        for p in range(start, stop):
            g = read(images, p, 37)
            write(out, p, g if g <= darkest else u8(g ^ u8(255)), 37)
    else:
        middle = f32(_mean_luma(images, i)) if code == _CONTRAST else f32(0)
        factor = f32(value)
        for p in range(start, stop):
            grey = f32(read(images, p, 38))
            write(out, p, level32((grey - middle) * factor + middle), 38)


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
