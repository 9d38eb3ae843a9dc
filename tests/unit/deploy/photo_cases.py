"""Policies that were searched on photos, and photos of several sizes, for the tests."""

import numpy as np
from numpy.typing import NDArray

from relook.policy import Policy, Step, SubPolicy
from relook.transforms.centre_crop import CentreCrop

PLAN = CentreCrop((32, 32), 0.875, 3, full_size=True)


def crop(name: str, magnitude: float, x: float, y: float, flip: bool | None = None) -> Step:
    draws = {"area": 0.4, "aspect": 0.7, "x": x, "y": y}
    return Step(name, magnitude, draws=draws if flip is None else {**draws, "flip": float(flip)})


VIEWS = (
    SubPolicy(),
    SubPolicy((crop("scale_crop_flip", 4, 0.2, 0.9, True),)),
    SubPolicy((crop("scale_crop_flip", 27, 0.8, 0.1, False), Step("solarize", 6))),
    SubPolicy((crop("scale_crop", 14, 0.5, 0.5), Step("rotate", 3, draws={"sign": -1.0}))),
    SubPolicy((crop("resized_crop_flip", 20, 0.1, 0.3, True),)),
    SubPolicy((Step("zoom", 0, draws={"x": 1.0, "y": 0.0}),)),
    SubPolicy((Step("zoom", 20, draws={"x": 0.3, "y": 0.6}), Step("flip", 0))),
    SubPolicy((Step("flip", 0),)),
)
"""Every start, and steps after some."""


def photo_policy(plan: CentreCrop = PLAN) -> Policy:
    return Policy(VIEWS, tuple(1.1 + 0.1 * k for k in range(len(VIEWS))), preparation=plan)


def some_photos(
    *sizes: tuple[int, int], channels: int = 3, seed: int = 0
) -> list[NDArray[np.uint8]]:
    """Photos `[h, w, c]`: by default wide, high, small, large, and of the input's own size."""
    generator = np.random.default_rng(seed)
    return [
        generator.integers(0, 256, (height, width, channels), dtype=np.uint8)
        for height, width in sizes or ((45, 80), (90, 41), (20, 27), (150, 130), (32, 32))
    ]
