"""Other libraries' versions of the transforms, each on its own kind of images.

A step here is a function of a batch in the peer's own format. Values are those of magnitude 20;
borders and rounding are the peer's own, so the pictures differ a little and the work is alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from relook.transforms import TRANSFORMS

BatchStep = Callable[[Any], Any]
MAGNITUDE = 20.0


@dataclass(frozen=True)
class Peer:
    """A library's steps; `in_processes`: it works image by image, so each core gets a process."""

    prepare: Callable[[NDArray[np.uint8]], Any]
    steps: Mapping[str, BatchStep]
    in_processes: bool


def value(name: str) -> float:
    """Return a transform's value at the benchmark's magnitude."""
    return TRANSFORMS[name].value(MAGNITUDE)


def load(name: str, side: int) -> Peer:
    """Return a peer by name; ImportError where it is not installed."""
    return _LOADERS[name](side)


def _each(function: Callable[[Any], Any]) -> BatchStep:
    return lambda batch: [function(image) for image in batch]


def _torchvision_steps(side: int, tensors: bool) -> dict[str, BatchStep]:
    from torchvision.transforms import InterpolationMode as Mode
    from torchvision.transforms.v2 import functional as tv

    cubic = Mode.BICUBIC
    warp = Mode.BILINEAR if tensors else cubic  # tensors have no bicubic warp
    shear, shift = np.degrees(np.arctan(value("shear_x"))), value("translate_x") * side
    box, hole = int(0.75 * side), round(value("cutout") * side)

    def affine(translate: list[float], sheared: list[float], mode: Any) -> BatchStep:
        return lambda x: tv.affine(x, 0.0, translate, 1.0, sheared, interpolation=mode)

    steps: dict[str, BatchStep] = {
        "shear_x": affine([0, 0], [shear, 0.0], warp),
        "shear_y": affine([0, 0], [0.0, shear], warp),
        "translate_x": affine([shift, 0], [0.0, 0.0], Mode.NEAREST),
        "translate_y": affine([0, shift], [0.0, 0.0], Mode.NEAREST),
        "rotate": lambda x: tv.rotate(x, value("rotate"), interpolation=warp),
        "autocontrast": tv.autocontrast,
        "solarize": lambda x: tv.solarize(x, value("solarize")),
        "posterize": lambda x: tv.posterize(x, int(value("posterize"))),
        "contrast": lambda x: tv.adjust_contrast(x, 1 + value("contrast")),
        "brightness": lambda x: tv.adjust_brightness(x, 1 + value("brightness")),
        "color": lambda x: tv.adjust_saturation(x, 1 + value("color")),
        "sharpness": lambda x: tv.adjust_sharpness(x, 1 + value("sharpness")),
        "invert": tv.invert,
        "equalize": tv.equalize,
        "scale_crop_flip": lambda x: tv.horizontal_flip(
            tv.resized_crop(x, 3, 5, box, box, [side, side], cubic, antialias=True)
        ),
        "crop_flip": lambda x: tv.horizontal_flip(tv.crop(tv.pad(x, 4), 2, 5, side, side)),
    }
    if tensors:
        black = torch.zeros((), dtype=torch.uint8)
        steps["cutout"] = lambda x: tv.erase(x, 4, 4, hole, hole, black)
        return steps
    return {name: _each(step) for name, step in steps.items()}


def _nchw(images: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(images)


def _pictures(images: NDArray[np.uint8]) -> list[Image.Image]:
    return [Image.fromarray(image.transpose(1, 2, 0)) for image in images]


def _torchvision_tensor(side: int) -> Peer:
    return Peer(_nchw, _torchvision_steps(side, tensors=True), in_processes=False)


def _torchvision_pil(side: int) -> Peer:
    return Peer(_pictures, _torchvision_steps(side, tensors=False), in_processes=True)


def _kornia(side: int) -> Peer:
    import kornia.enhance as ke
    import kornia.geometry.transform as kt

    def full(number: float, x: torch.Tensor, *shape: int) -> torch.Tensor:
        return torch.full((len(x), *shape), number)

    def shear(x: torch.Tensor, column: int) -> Any:
        slopes = torch.zeros(len(x), 2)
        slopes[:, column] = value("shear_x")
        return kt.shear(x, slopes, mode="bilinear", padding_mode="reflection")

    def shift(x: torch.Tensor, column: int) -> Any:
        pixels = torch.zeros(len(x), 2)
        pixels[:, column] = value("translate_x") * side
        return kt.translate(x, pixels, mode="nearest", padding_mode="reflection")

    steps: dict[str, BatchStep] = {
        "shear_x": lambda x: shear(x, 0),
        "shear_y": lambda x: shear(x, 1),
        "translate_x": lambda x: shift(x, 0),
        "translate_y": lambda x: shift(x, 1),
        "rotate": lambda x: kt.rotate(
            x, full(value("rotate"), x), mode="bicubic", padding_mode="reflection"
        ),
        "solarize": lambda x: ke.solarize(x, value("solarize") / 255),
        "posterize": lambda x: ke.posterize(x, int(value("posterize"))),
        "contrast": lambda x: ke.adjust_contrast(x, 1 + value("contrast")),
        "brightness": lambda x: ke.adjust_brightness(x, value("brightness")),
        "color": lambda x: ke.adjust_saturation(x, 1 + value("color")),
        "sharpness": lambda x: ke.sharpness(x, 1 + value("sharpness")),
        "invert": lambda x: ke.invert(x),
        "equalize": lambda x: ke.equalize(x),
    }
    return Peer(lambda images: torch.from_numpy(images).float() / 255, steps, in_processes=False)


def _albumentations(side: int) -> Peer:
    import albumentations as al
    import cv2

    cv2.setNumThreads(1)
    mirrored = {"border_mode": cv2.BORDER_REFLECT_101, "p": 1.0}
    warp = {"interpolation": cv2.INTER_CUBIC, **mirrored}
    degrees = float(np.degrees(np.arctan(value("shear_x"))))
    share, hole = value("translate_x"), round(value("cutout") * side)
    level, bits = value("solarize") / 255, int(value("posterize"))
    none, change = (1.0, 1.0), (1 + value("contrast"),) * 2

    def jitter(**changes: Any) -> Any:
        still = {"brightness": none, "contrast": none, "saturation": none, "hue": (0.0, 0.0)}
        return al.ColorJitter(**{**still, **changes}, p=1.0)

    made: dict[str, Any] = {
        "shear_x": al.Affine(shear={"x": (degrees, degrees), "y": (0, 0)}, **warp),
        "shear_y": al.Affine(shear={"x": (0, 0), "y": (degrees, degrees)}, **warp),
        "translate_x": al.Affine(translate_percent={"x": (share, share), "y": (0, 0)}, **mirrored),
        "translate_y": al.Affine(translate_percent={"x": (0, 0), "y": (share, share)}, **mirrored),
        "rotate": al.Rotate(limit=(value("rotate"),) * 2, **warp),
        "autocontrast": al.AutoContrast(cutoff=value("autocontrast"), p=1.0),
        "solarize": al.Solarize(threshold_range=(level, level), p=1.0),
        "posterize": al.Posterize(num_bits=(bits, bits), p=1.0),
        "contrast": jitter(contrast=change),
        "brightness": jitter(brightness=change),
        "color": jitter(saturation=change),
        "sharpness": al.Sharpen(alpha=(0.5, 0.5), p=1.0),
        "invert": al.InvertImg(p=1.0),
        "equalize": al.Equalize(mode="pil", p=1.0),
        "cutout": al.CoarseDropout(
            num_holes_range=(1, 1),
            hole_height_range=(hole, hole),
            hole_width_range=(hole, hole),
            p=1.0,
        ),
        "scale_crop_flip": al.Compose(
            [
                al.RandomResizedCrop(
                    (side, side), scale=(0.5, 0.51), interpolation=cv2.INTER_CUBIC, p=1.0
                ),
                al.HorizontalFlip(p=1.0),
            ]
        ),
        "crop_flip": al.Compose(
            [
                al.Pad(padding=4, p=1.0),
                al.RandomCrop(side, side, p=1.0),
                al.HorizontalFlip(p=1.0),
            ]
        ),
    }
    steps = {name: _each(_called(transform)) for name, transform in made.items()}
    return Peer(_nhwc, steps, in_processes=True)


def _called(transform: Any) -> Callable[[Any], Any]:
    return lambda image: transform(image=image)["image"]


def _nhwc(images: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
    return [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in images]


_LOADERS: Mapping[str, Callable[[int], Peer]] = {
    "torchvision v2, tensors": _torchvision_tensor,
    "torchvision v2, PIL": _torchvision_pil,
    "kornia": _kornia,
    "albumentations": _albumentations,
}
PEERS = tuple(_LOADERS)
