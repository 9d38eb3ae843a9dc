"""The classifier inside a TTA module: uint8 views in, log-probabilities out, on its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relook.errors import RelookError
from relook.models import CallablePredictor, Predictor, TorchPredictor, as_predictor
from relook.models.base import InputSpec, Outputs, input_of, to_log_probs
from relook.models.predictors import network_failed
from relook.numerics.calibration import LOG_FLOOR

Numbers = float | tuple[float, ...]


class PredictorModule(nn.Module):
    """A predictor that is no torch module (an ONNX file, an ensemble, a function) as one.

    It has no parameters: the predictor stays on the device that it was made for.
    """

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        if is_traced():
            raise RelookError(
                "expected a torch module to compile or export, got a "
                f"{type(self.predictor).__name__}: give TTA the module itself"
            )
        return self.predictor(images.cpu())


@dataclass(frozen=True)
class Network:
    """What a module's inputs and outputs are; `bare` ones take uint8 and give log-probabilities."""

    mean: Numbers = 0.0
    std: Numbers = 1.0
    outputs: Outputs = "logits"
    bare: bool = False
    classes: int | None = None
    input: InputSpec | None = None

    @property
    def channels(self) -> int | None:
        """How many channels the images must have, where the normalisation or the source says."""
        counts = {len(v) for v in (self.mean, self.std) if isinstance(v, tuple)}
        if counts:
            return max(counts)
        return None if self.input is None else self.input.channels

    def __call__(self, module: nn.Module, views: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` on the module's device."""
        if self.bare:
            return to_log_probs(module(views), "log_probs", len(views), self.classes)
        parameter = next((p for p in module.parameters() if p.is_floating_point()), None)
        device = views.device if parameter is None else parameter.device
        dtype = torch.float32 if parameter is None else parameter.dtype
        inputs = self._normalised(views.to(device, non_blocking=True)).to(dtype)
        if is_traced():
            return _unchecked_log_probs(module(inputs), self.outputs)
        return self._checked(_called(module, inputs), len(views))

    def _normalised(self, views: Tensor) -> Tensor:
        scaled = views.to(torch.float32).div_(255)  # a copy, so it may be changed in place
        if self.mean != 0.0:
            scaled.sub_(_by_channel(self.mean, views.device))
        if self.std != 1.0:
            scaled.div_(_by_channel(self.std, views.device))
        return scaled

    def _checked(self, results: object, images: int) -> Tensor:
        if isinstance(results, Tensor) and results.device.type != "cpu" and results.ndim == 2:
            # The checks of to_log_probs would wait for the device at each call.
            return _unchecked_log_probs(results, self.outputs)
        return to_log_probs(results, self.outputs, images, self.classes)


def network_of(model: object, options: dict[str, Any]) -> tuple[nn.Module, Network]:
    """Return the module to run and how to run it; `options` are those of `as_predictor`."""
    predictor = as_predictor(model, **options)
    if not isinstance(predictor, TorchPredictor):
        known = predictor.classes if not isinstance(predictor, CallablePredictor) else None
        module = PredictorModule(predictor).eval()
        return module, Network(bare=True, classes=known, input=input_of(predictor))
    mean, std = predictor.normalisation
    network = Network(
        mean, std, predictor.outputs, classes=predictor.classes, input=input_of(predictor)
    )
    return predictor.module, network


def is_traced() -> bool:
    """Whether torch.compile or torch.export is making a graph of this call."""
    return torch.compiler.is_compiling()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into eval mode and, afterwards, what was training back into train mode."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _by_channel(values: Numbers, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=device).reshape(1, -1, 1, 1)


def _called(module: nn.Module, inputs: Tensor) -> object:
    try:
        return module(inputs)
    except RelookError:
        raise
    except Exception as error:
        raise network_failed(error, inputs) from error


def _unchecked_log_probs(results: Tensor, outputs: Outputs) -> Tensor:
    values = results.float()
    if outputs == "probabilities":
        values = values.log().clamp(min=LOG_FLOOR)
    return values.log_softmax(dim=-1).clamp(min=LOG_FLOOR)
