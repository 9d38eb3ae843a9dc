"""Predictors made of PyTorch modules and of plain functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.io.fingerprint import fingerprint as fingerprint_of
from relook.models.base import InputSpec, Outputs, check_outputs, to_log_probs
from relook.transforms.checks import check_images

Channels = float | Sequence[float]
_CHANNEL_MESSAGE = re.compile(r"to have (\d+) channels, but got (\d+) channels")


class TorchPredictor:
    """A module as a predictor: eval mode, inference mode, (images / 255 − mean) / std.

    `mean` and `std` are on the scale 0…1: one number for all channels, or one per channel.
    The module is moved to `device` ("auto": a GPU if there is one) and not copied; without one it
    stays where it is. The fingerprint is made when it is first
    asked for, from the class's name, the weights, the normalisation and `outputs`; a change
    of the class's code alone is not noticed. `input` is what images it takes, where known.
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        mean: Channels | None = None,
        std: Channels | None = None,
        device: str | torch.device | None = None,
        outputs: Outputs = "logits",
        fingerprint: str | None = None,
        classes: int | None = None,
        input: InputSpec | None = None,
    ) -> None:
        check_outputs(outputs)
        self.classes, self.input = classes, input
        self._mean = _channel_values("mean", mean, 0.0)
        self._std = _channel_values("std", std, 1.0)
        self._outputs: Outputs = outputs
        self._given_fingerprint = fingerprint
        self._module, self._device = _on_device(module, device)
        self._dtype = next(
            (p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32
        )

    @property
    def module(self) -> nn.Module:
        """The module itself."""
        return self._module

    @property
    def device(self) -> torch.device:
        """Where the module runs."""
        return self._device

    def move(self, device: str | torch.device) -> None:
        """Take the module to another device."""
        self._module, self._device = _on_device(self._module, device)

    @property
    def outputs(self) -> Outputs:
        """What the module returns."""
        return self._outputs

    @property
    def normalisation(self) -> tuple[float | tuple[float, ...], float | tuple[float, ...]]:
        """Mean and standard deviation on the scale 0…1, each one number or one per channel."""
        return self._mean, self._std

    @cached_property
    def fingerprint(self) -> str:
        """The given one, or one of class name, weights, normalisation and outputs."""
        if self._given_fingerprint is not None:
            return self._given_fingerprint
        name = _qualified_name(type(self._module))
        weights = self._module.state_dict()
        try:
            return fingerprint_of(name, weights, self._mean, self._std, self._outputs)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise RelookError(
                f"expected plain tensors in the state dict of {name}: {first_line(error)}; "
                "give the predictor a fingerprint of your own"
            ) from error

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        check_images(images)
        inputs = self._normalise(images)
        self._module.eval()  # at each call: the caller may have trained on in between
        try:
            with torch.inference_mode():
                results = self._module(inputs)
        except RelookError:
            raise
        except Exception as error:
            raise network_failed(error, images) from error
        return to_log_probs(results, self._outputs, len(images), self.classes)

    def inputs(self, images: Tensor) -> Tensor:
        """Return uint8 images `[n, c, h, w]` as the module takes them."""
        return self._normalise(images)

    def _normalise(self, images: Tensor) -> Tensor:
        scaled = images.to(self._device, non_blocking=True).float() / 255
        mean = self._by_channel("mean", self._mean, images.shape[1])
        std = self._by_channel("std", self._std, images.shape[1])
        return ((scaled - mean) / std).to(self._dtype)

    def _by_channel(self, name: str, values: float | tuple[float, ...], channels: int) -> Tensor:
        if isinstance(values, tuple) and len(values) != channels:
            raise RelookError(
                f"expected images with {len(values)} channels, one per value of {name}; "
                f"got {channels}: convert the images, or change {name}"
            )
        tensor = torch.tensor(values, dtype=torch.float32, device=self._device)
        return tensor.reshape(1, -1, 1, 1)


class CallablePredictor:
    """A function of uint8 images `[n, c, h, w]` as a predictor; `outputs` says what it returns.

    Without a fingerprint of the caller's, the function's qualified name stands for it: then
    a change of what the function does cannot be noticed.
    """

    def __init__(
        self,
        function: Callable[[Tensor], object],
        *,
        outputs: Outputs,
        fingerprint: str | None = None,
        classes: int | None = None,
    ) -> None:
        check_outputs(outputs)
        self.classes = classes
        self.fingerprint = fingerprint or fingerprint_of(_qualified_name(function), outputs)
        self._function = function
        self._outputs = outputs

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        check_images(images)
        results = self._function(images)
        if isinstance(results, np.ndarray):
            results = torch.from_numpy(results)
        return to_log_probs(results, self._outputs, len(images), self.classes)


def _channel_values(
    name: str, values: Channels | None, default: float
) -> float | tuple[float, ...]:
    if values is None:
        return default
    try:
        given = tuple(float(v) for v in values) if isinstance(values, Sequence) else float(values)
    except (TypeError, ValueError):
        raise RelookError(
            f"expected {name} as one number, or one per channel, got {values!r}"
        ) from None
    for value in given if isinstance(given, tuple) else (given,):
        if not math.isfinite(value) or (name == "std" and value <= 0):
            wanted = "finite" if name == "mean" else "positive, finite"
            raise RelookError(f"expected {wanted} numbers for {name}, got {values!r}")
        if name == "mean" and value > 1:
            raise RelookError(
                f"expected a mean on the scale 0…1, got {values!r}: divide mean and std by 255"
            )
    return given


def best_device() -> str:
    """Return where a module runs fastest on this machine: cuda, mps, or else cpu."""
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _on_device(
    module: nn.Module, device: str | torch.device | None
) -> tuple[nn.Module, torch.device]:
    if device is None:
        device = next((weights.device for weights in module.parameters()), "cpu")
    try:
        place = torch.device(best_device() if device == "auto" else device)
        return module.to(place), place
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RelookError(f"cannot use device {str(device)!r}: {first_line(error)}") from error


def _qualified_name(thing: object) -> str:
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}.{getattr(named, '__qualname__', '')}"


def network_failed(error: Exception, images: Tensor) -> RelookError:
    """Build the error for a module that raised; a wrong number of channels is named."""
    channels = images.shape[1]
    wrong = _CHANNEL_MESSAGE.search(str(error))
    if wrong and int(wrong[2]) == channels:
        return RelookError(
            f"expected images with {wrong[1]} channels, as the network takes; got {channels}: "
            "convert the images, or choose another network"
        )
    return RelookError(
        f"the network failed on images {list(images.shape)}: "
        f"{type(error).__name__}: {first_line(error)}"
    )
