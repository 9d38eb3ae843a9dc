"""The classifier inside a TTA module: uint8 views in, log-probabilities out, on its device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from relook.errors import RelookError
from relook.models import Predictor, TorchPredictor, as_predictor
from relook.models.base import Outputs, to_log_probs
from relook.models.predictors import network_failed, normalised
from relook.numerics.calibration import LOG_FLOOR

_BATCH = 256
_LEAST_BATCH = 8
# Per thread, on the CPU: 16 images of 32×32, whose activations stay in the cache.
_THREAD_PIXELS = 1 << 14


class PredictorModule(nn.Module):
    """A torch module around another kind of predictor: an ONNX file, an ensemble, a function.

    It has no parameters: the predictor stays on its device.
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
    """Runs a predictor's module, or a copy of it, on its current device."""

    predictor: Predictor

    def __call__(self, module: nn.Module, views: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` on the module's device."""
        predictor = self.predictor
        if not isinstance(predictor, TorchPredictor):
            return to_log_probs(module(views), "log_probs", len(views), predictor.classes)
        parameter = next((p for p in module.parameters() if p.is_floating_point()), None)
        device = views.device if parameter is None else parameter.device
        dtype = torch.float32 if parameter is None else parameter.dtype
        inputs = normalised(views.to(device, non_blocking=True), predictor.normalisation).to(dtype)
        if is_traced():
            return _unchecked_log_probs(module(inputs), predictor.outputs)
        try:
            results = module(inputs)
        except RelookError:
            raise
        except Exception as error:
            raise network_failed(error, inputs) from error
        if isinstance(results, Tensor) and results.device.type != "cpu" and results.ndim == 2:
            # The checks of to_log_probs would synchronize with the device at each call.
            return _unchecked_log_probs(results, predictor.outputs)
        return to_log_probs(results, predictor.outputs, len(views), predictor.classes)

    def record(self) -> str:
        """Return the normalisation and the kind of outputs as text."""
        predictor = self.predictor
        if isinstance(predictor, TorchPredictor):
            return str((*predictor.normalisation, predictor.outputs))
        return str((0.0, 1.0, "logits"))


def network_of(model: object, options: dict[str, Any]) -> tuple[nn.Module, Network]:
    """Return the module to run and how to run it; `options` are those of `as_predictor`."""
    predictor = as_predictor(model, **options)
    if isinstance(predictor, TorchPredictor):
        return predictor.module, Network(predictor)
    return PredictorModule(predictor).eval(), Network(predictor)


def is_traced() -> bool:
    """Whether torch.compile or torch.export is making a graph of this call."""
    return torch.compiler.is_compiling()


def batch_limit(module: nn.Module, pixels: int) -> int:
    """Return how many images of so many pixels a module predicts fastest at once."""
    first = next(module.parameters(), None)
    if first is not None and first.device.type not in ("cpu", "meta"):
        return _BATCH
    return min(_BATCH, max(_LEAST_BATCH, _THREAD_PIXELS * torch.get_num_threads() // pixels))


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a module into eval mode, and the parts that were training back at the end."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _unchecked_log_probs(results: Tensor, outputs: Outputs) -> Tensor:
    values = results.float()
    if outputs == "probabilities":
        values = values.log().clamp(min=LOG_FLOOR)
    return values.log_softmax(dim=-1).clamp(min=LOG_FLOOR)
