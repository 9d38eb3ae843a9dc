"""Checks of the input of every kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import torch
from torch import Tensor

from relook.errors import RelookError

SMALLEST_SIDE = 8


def check_images(images: Tensor, where: str = "images") -> None:
    """Raise unless `images` is a uint8 tensor `[n, c, h, w]`, c 1 or 3, h and w at least 8."""
    if not isinstance(images, Tensor):
        raise RelookError(
            f"{where}: expected a torch uint8 tensor [n, c, h, w], got {type(images).__name__}; "
            "make one with torch.from_numpy"
        )
    shape = list(images.shape)
    if images.dtype != torch.uint8:
        raise RelookError(
            f"{where}: expected uint8 images (grey levels 0 … 255), got {images.dtype} of shape "
            f"{shape}; undo the normalisation first"
        )
    if images.ndim != 4 or shape[1] not in (1, 3):
        raise RelookError(
            f"{where}: expected images of shape [n, c, h, w] with c = 1 or 3, got {shape}; "
            "put the channels before height and width"
        )
    if min(shape[2:]) < SMALLEST_SIDE:
        raise RelookError(
            f"{where}: expected images of at least {SMALLEST_SIDE}×{SMALLEST_SIDE} pixels, "
            f"got {shape[2]}×{shape[3]} (height × width); enlarge them first"
        )


def grey_levels(images: Tensor, where: str = "") -> Tensor:
    """Return float images in [0, 1] as grey levels, uint8; others are refused.

    Values are not checked while torch compiles a graph.
    """
    if images.numel() and not torch.compiler.is_compiling():
        low, high = (float(v) for v in torch.aminmax(images.detach()))
        if low != low or high != high:
            raise RelookError(
                f"{where}expected float images in [0, 1], got NaN: check where they come from"
            )
        if low < 0 or high > 1:
            hint = (
                "they look like grey levels: convert them to uint8"
                if low >= 0 and 2 < high <= 255
                else "undo the normalisation: mean and std belong to the model (mean=…, std=…)"
            )
            raise RelookError(
                f"{where}expected float images in [0, 1], got values from {low:.4g} to "
                f"{high:.4g}; {hint}"
            )
    return (images.detach().to(torch.float32) * 255).round_().to(torch.uint8)


def check_parameter(parameter: Tensor, name: str, count: int, where: str) -> None:
    """Raise unless `parameter` is a finite float64 tensor `[count]`, one entry per image."""
    if not isinstance(parameter, Tensor) or parameter.dtype != torch.float64:
        got = parameter.dtype if isinstance(parameter, Tensor) else type(parameter).__name__
        raise RelookError(f"{where}: expected {name} as a float64 tensor [{count}], got {got}")
    if parameter.shape != (count,):
        raise RelookError(
            f"{where}: expected {name} of shape [{count}], one for each image, "
            f"got {list(parameter.shape)}"
        )
    if not bool(torch.isfinite(parameter).all()):
        raise RelookError(f"{where}: expected finite {name}, got {parameter.tolist()}")


def checked_own(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a user's kernel with checks of its input and its result; errors name the transform."""

    def kernel(images: Tensor, values: Tensor, **draws: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and not len(images):
            return images.clone()
        result = function(images, values, **draws)
        if not isinstance(result, Tensor) or (result.dtype, result.shape) != (
            torch.uint8,
            images.shape,
        ):
            got = type(result).__name__
            if isinstance(result, Tensor):
                got = f"{result.dtype} {list(result.shape)}"
            raise RelookError(
                f"{name}: expected a uint8 tensor {list(images.shape)} back, got {got}"
            )
        return result

    kernel.__name__ = str(name)
    return checked(kernel)


def checked(kernel: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a kernel that checks its images, values and draws; errors name it.

    Nothing is checked while torch compiles a graph, where one value stands for all images.
    """

    @wraps(kernel)
    def wrapper(images: Tensor, values: Tensor, **draws: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return kernel(images, values, **draws)
        check_images(images, kernel.__name__)
        check_parameter(values, "values", len(images), kernel.__name__)
        for name, draw in draws.items():
            check_parameter(draw, name, len(images), kernel.__name__)
        return kernel(images, values, **draws)

    return wrapper
