"""The one table of corruptions: kernel, and what its five severities are at two image sizes.

The parameters are facts of the published sets (Hendrycks and Dietterich, "Benchmarking neural
network robustness to common corruptions and perturbations", ICLR 2019; values from
github.com/hendrycks/robustness): those of CIFAR-10-C for a side of 32 pixels and those of
ImageNet-C for 224. Between the two, as the side grows by equal factors, lengths in pixels change by
equal steps and all else by equal factors; outside, lengths grow and shrink with the side, and all
else stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from relook.foundation.registry import by_name
from relook.numerics.arrays import FloatArray
from relook.studies.corruptions import blur, digital, noise, weather
from relook.studies.corruptions.draws import Draws, Levels

SMALL, LARGE = 32, 224
"""The sides, in pixels, that the published parameters are for."""

Parameters = tuple[float, ...]
Kernel = Callable[[Levels, Parameters, Draws], FloatArray]
Five = tuple[Parameters, Parameters, Parameters, Parameters, Parameters]


@dataclass(frozen=True)
class Corruption:
    """One row: `kernel(image, parameters, draws)` on uint8 `[c, h, w]` gives levels 0 … 255.

    `small` and `large` are the parameters of the five severities for sides of 32 and 224;
    `lengths` says which of them are lengths in pixels. `number` names the row's random
    numbers and never changes.
    """

    number: int
    name: str
    kernel: Kernel
    small: Five
    large: Five
    lengths: tuple[int, ...] = ()

    def parameters(self, severity: int, side: int) -> Parameters:
        """Return the parameters of a severity for images whose shorter side is `side` pixels."""
        small, large = self.small[severity - 1], self.large[severity - 1]
        share = math.log(side / SMALL) / math.log(LARGE / SMALL)
        if 0 <= share <= 1:
            return tuple(
                _between(s, g, share, i in self.lengths)
                for i, (s, g) in enumerate(zip(small, large, strict=True))
            )
        values, scale = (small, side / SMALL) if share < 0 else (large, side / LARGE)
        return tuple(v * scale if i in self.lengths else v for i, v in enumerate(values))


def _between(small: float, large: float, share: float, length: bool) -> float:
    """Go from one value to the other by steps if it is a length, or 0; else by factors."""
    if small > 0 and large > 0 and not length:
        return float(small ** (1 - share) * large**share)
    return small + share * (large - small)


def _each(*values: float) -> Five:
    """Return five severities of a single parameter."""
    first, second, third, fourth, fifth = ((value,) for value in values)
    return first, second, third, fourth, fifth


def _scaled(five: Five, factor: float) -> Five:
    first, second, third, fourth, fifth = (tuple(factor * v for v in one) for one in five)
    return first, second, third, fourth, fifth


_ROWS = (
    Corruption(
        0,
        "gaussian_noise",
        noise.gaussian_noise,
        _each(0.04, 0.06, 0.08, 0.09, 0.10),
        _each(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    Corruption(
        1,
        "shot_noise",
        noise.shot_noise,
        _each(500, 250, 100, 75, 50),
        _each(60, 25, 12, 5, 3),
    ),
    Corruption(
        2,
        "impulse_noise",
        noise.impulse_noise,
        _each(0.01, 0.02, 0.03, 0.05, 0.07),
        _each(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    Corruption(
        3,
        "defocus_blur",
        blur.defocus_blur,
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        lengths=(0, 1),
    ),
    Corruption(
        4,
        "glass_blur",
        blur.glass_blur,
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        lengths=(0, 1),
    ),
    Corruption(
        5,
        "motion_blur",
        blur.motion_blur,
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        lengths=(0, 1),
    ),
    Corruption(
        6,
        "zoom_blur",
        blur.zoom_blur,
        ((1.06, 0.01), (1.11, 0.01), (1.15, 0.01), (1.20, 0.01), (1.25, 0.01)),
        ((1.11, 0.01), (1.15, 0.01), (1.20, 0.02), (1.24, 0.02), (1.30, 0.03)),
    ),
    Corruption(
        7,
        "snow",
        weather.snow,
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
        lengths=(2, 4, 5),
    ),
    Corruption(
        8,
        "frost",
        weather.frost,
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    Corruption(
        9,
        "fog",
        weather.fog,
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    Corruption(
        10,
        "brightness",
        weather.brightness,
        _each(0.05, 0.1, 0.15, 0.2, 0.3),
        _each(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    Corruption(
        11,
        "contrast",
        digital.contrast,
        _each(0.75, 0.5, 0.4, 0.3, 0.15),
        _each(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    Corruption(
        12,
        "elastic_transform",
        digital.elastic_transform,
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        _scaled(  # published as shares of 244 pixels
            ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02),
             (0.12, 0.01, 0.02)),
            244 / LARGE,
        ),
    ),
    Corruption(
        13,
        "pixelate",
        digital.pixelate,
        _each(0.95, 0.9, 0.85, 0.75, 0.65),
        _each(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    Corruption(
        14,
        "jpeg_compression",
        digital.jpeg_compression,
        _each(80, 65, 58, 50, 40),
        _each(25, 18, 15, 10, 7),
    ),
)  # fmt: skip


CORRUPTIONS = by_name(_ROWS)
"""All corruptions by name, in the order of the published sets."""
