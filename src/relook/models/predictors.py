"""Predictors made from a PyTorch module, from a function, and from several models."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from relook.errors import RefusedKeywordError, RelookError
from relook.foundation.wording import count, first_line
from relook.io.fingerprint import fingerprint as fingerprint_of
from relook.models.base import (
    InputSpec,
    Outputs,
    Predictor,
    check_outputs,
    input_of,
    to_log_probs,
)
from relook.transforms.checks import check_images

Channels = float | Sequence[float]
Numbers = float | tuple[float, ...]
_CHANNEL_MESSAGE = re.compile(r"to have (\d+) channels, but got (\d+) channels")


class TorchPredictor:
    """A module as a predictor: eval mode, inference mode, (images / 255 − mean) / std.

    `mean` and `std` are on the scale 0…1: one number for all channels, or one per channel. The
    module is moved to `device` ("auto": a GPU if there is one), not copied; by default it stays on
    its own. The fingerprint is computed on first use, from the class's name, the weights, the
    normalisation and `outputs`; it does not notice a change of the class's code. `input` describes
    the images that the module takes, if known. `unstated` names what is not given of mean and std;
    `is_bare`: the module comes from a file or a factory that cannot say what they are.
    """

    is_bare = False

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
        self.outputs, self.classes, self.input = outputs, classes, input
        self.normalisation = _channel_values("mean", mean, 0.0), _channel_values("std", std, 1.0)
        self.unstated = unstated(mean, std)
        self._given_fingerprint = fingerprint
        self.module, self.device = _on_device(module, device)
        self._dtype = next(
            (p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32
        )

    def move(self, device: str | torch.device) -> None:
        """Move the module to another device."""
        self.module, self.device = _on_device(self.module, device)

    @cached_property
    def fingerprint(self) -> str:
        """The given fingerprint, or one of class name, weights, normalisation and outputs."""
        if self._given_fingerprint is not None:
            return self._given_fingerprint
        name = _qualified_name(type(self.module))
        weights = self.module.state_dict()
        try:
            return fingerprint_of(name, weights, *self.normalisation, self.outputs)
        except (TypeError, RuntimeError, NotImplementedError) as error:
            raise RelookError(
                f"expected plain tensors in the state dict of {name}: {first_line(error)}; "
                "give the predictor a fingerprint of your own"
            ) from error

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        check_images(images)
        inputs = self.inputs(images)
        self.module.eval()  # at each call: the caller may have trained in between
        try:
            with torch.inference_mode():
                results = self.module(inputs)
        except RelookError:
            raise
        except Exception as error:
            raise network_failed(error, images) from error
        return to_log_probs(results, self.outputs, len(images), self.classes)

    def inputs(self, images: Tensor) -> Tensor:
        """Return uint8 images `[n, c, h, w]` as the module takes them."""
        channels = images.shape[1]
        for name, values in zip(("mean", "std"), self.normalisation, strict=True):
            if isinstance(values, tuple) and len(values) != channels:
                raise RelookError(
                    f"expected images with {count(len(values), 'channel')}, one per value of "
                    f"{name}; got {channels}: convert the images, or change {name}"
                )
        images = images.to(self.device, non_blocking=True)
        return normalised(images, self.normalisation).to(self._dtype)


class CallablePredictor:
    """A function of uint8 images `[n, c, h, w]` as a predictor; it returns `outputs` `[n, class]`.

    The default fingerprint is of the function's qualified name, and does not notice a change of
    its code.
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


class EnsemblePredictor:
    """The mean of its members' probabilities, in log space.

    The members get the same images: their `input`s must agree on size, crop and channels. The
    ensemble's has the interpolation of the first.
    """

    def __init__(self, predictors: Sequence[Predictor]) -> None:
        if not predictors:
            raise RelookError("expected at least one model for an ensemble, got none")
        self.members = tuple(predictors)
        self.classes = _common_classes([member.classes for member in self.members])
        self.input = _common_input([input_of(member) for member in self.members])

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the members' fingerprints, in order."""
        return fingerprint_of("ensemble", [member.fingerprint for member in self.members])

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        results = [member(images) for member in self.members]
        _common_classes([log_probs.shape[1] for log_probs in results])
        stacked = torch.stack(results).double()
        return (stacked.logsumexp(dim=0) - math.log(len(results))).float()


@dataclass(frozen=True)
class ModelOptions:
    """Options of a model on the command line; None leaves a value to the source.

    `size` is one side or `(height, width)` in pixels, `crop` the input's share of the shorter side;
    `pretrained` fetches the source's own weights.
    """

    mean: Channels | None = None
    std: Channels | None = None
    outputs: Outputs | None = None
    device: str = "cpu"
    size: int | tuple[int, int] | None = None
    crop: float | None = None
    pretrained: bool = False

    def input_spec(self, known: InputSpec | None = None) -> InputSpec | None:
        """Return the source's spec with the size and crop of these options, if given."""
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        if known is None:
            if size is None:
                return None
            known = InputSpec(size)
        crop = known.crop if self.crop is None else self.crop
        return replace(known, size=size or known.size, crop=crop)

    def normalisation(
        self, mean: Channels | None, std: Channels | None
    ) -> tuple[Channels | None, Channels | None]:
        """Return the mean and std of these options, or else the source's."""
        return mean if self.mean is None else self.mean, std if self.std is None else self.std

    def predictor(
        self,
        module: nn.Module,
        *,
        known: InputSpec | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        classes: int | None = None,
        fingerprint: str | None = None,
    ) -> TorchPredictor:
        """Return a module as a predictor; `known`, `mean` and `std` are the source's own."""
        mean, std = self.normalisation(mean, std)
        return TorchPredictor(
            module,
            mean=mean,
            std=std,
            outputs=self.outputs or "logits",
            device=self.device,
            classes=classes,
            input=self.input_spec(known),
            fingerprint=fingerprint,
        )

    def refuse(self, source: str, *names: str) -> None:
        """Raise if one of the named options is given, as the source brings its own."""
        given = [name for name in names if getattr(self, name) not in (None, False, "logits")]
        if given:
            raise RefusedKeywordError(
                f"expected no {' or '.join(given)} with {source}, which brings its own: "
                "leave them out",
                *given,
            )


def unstated(mean: Channels | None, std: Channels | None) -> tuple[str, ...]:
    """Return the names of what is not given."""
    return tuple(name for name, values in (("mean", mean), ("std", std)) if values is None)


def channels_of(predictor: Predictor) -> int | None:
    """Return the number of channels of a predictor's images, None if it is not known."""
    if isinstance(predictor, EnsemblePredictor):
        return next(filter(None, map(channels_of, predictor.members)), None)
    spec = input_of(predictor)
    if spec is not None and spec.channels is not None:
        return spec.channels
    values = getattr(predictor, "normalisation", None) or ()
    return next((len(one) for one in values if isinstance(one, tuple)), None)


def normalised(images: Tensor, normalisation: tuple[Numbers, Numbers]) -> Tensor:
    """Return uint8 images `[n, c, h, w]` as float32, by mean and std on the scale 0…1."""
    scaled = images.to(torch.float32).div_(255)  # a copy, so it may be changed in place
    mean, std = normalisation
    if mean != 0.0:
        scaled.sub_(_by_channel(mean, images.device))
    if std != 1.0:
        scaled.div_(_by_channel(std, images.device))
    return scaled


def _by_channel(values: Numbers, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device).reshape(1, -1, 1, 1)


def _channel_values(name: str, values: Channels | None, default: float) -> Numbers:
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
    """Return the fastest device of this machine: cuda, mps, or else cpu."""
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
    """Return the error for a module that raised, with a hint if the number of channels is wrong."""
    channels = images.shape[1]
    mismatch = _CHANNEL_MESSAGE.search(str(error))
    if mismatch and int(mismatch[2]) == channels:
        return RelookError(
            f"expected images with {count(int(mismatch[1]), 'channel')}, as the network takes; "
            f"got {channels}: convert the images, or choose another network"
        )
    return RelookError(
        f"the network failed on images {list(images.shape)}: "
        f"{type(error).__name__}: {first_line(error)}"
    )


def _common_classes(counts: Sequence[int | None]) -> int | None:
    """Return the number of classes of an ensemble's members, None if no member's is known."""
    known = {count for count in counts if count is not None}
    if len(known) > 1:
        shown = ", ".join("?" if count is None else str(count) for count in counts)
        raise RelookError(
            f"expected models with the same classes for an ensemble, got {shown} classes"
        )
    return known.pop() if known else None


def _common_input(specs: Sequence[InputSpec | None]) -> InputSpec | None:
    known = [spec for spec in specs if spec is not None]
    for spec in known[1:]:
        if replace(spec, interpolation=known[0].interpolation) != known[0]:
            raise RelookError(
                "expected models that take the same images for an ensemble, got "
                f"{_shown(known[0])} and {_shown(spec)}: say which with size and crop"
            )
    return known[0] if known else None


def _shown(spec: InputSpec) -> str:
    height, width = spec.size
    channels = "any" if spec.channels is None else spec.channels
    return f"{channels}×{height}×{width} (crop {spec.crop:g})"
