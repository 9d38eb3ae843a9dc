"""The networks inside an exported ONNX model: views in, probabilities out."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.models import EnsemblePredictor, Predictor, TorchPredictor
from relook.models.base import Outputs
from relook.models.onnx_file import OnnxFilePredictor
from relook.models.onnx_runtime import INPUT, OPSET, OUTPUT, export_network
from relook.numerics.calibration import LOG_FLOOR
from relook.transforms.onnx.graph import Graph, import_onnx


@dataclass(frozen=True)
class Networks:
    """The networks inside an ONNX model, each exported or read once.

    `example` are images `[n, c, h, w]` as the networks take them.
    """

    example: Tensor
    models: dict[int, Any] = field(default_factory=dict)

    def write(
        self, graph: Graph, predictor: Predictor, views: str, view_temperature: float = 1.0
    ) -> str:
        """Append a predictor: uint8 views `[n, c, h, w]` in, float32 probabilities out.

        The view temperature is applied to an ensemble's mean, not to each member.
        """
        if isinstance(predictor, EnsemblePredictor):
            parts = [self.write(graph, member, views) for member in predictor.members]
            mean = graph.add("Mean", *parts)
            if view_temperature == 1:
                return mean
            return _write_tempered(graph, graph.add("Log", mean), view_temperature)
        if isinstance(predictor, TorchPredictor):
            _check_precision(predictor)
            results = graph.embed(self._model_of(predictor), {INPUT: views}, OUTPUT)
        elif isinstance(predictor, OnnxFilePredictor):
            results = self._write_onnx_file(graph, predictor, views)
        else:
            raise RelookError(
                f"expected a network to export, got a {type(predictor).__name__}: give a torch "
                "module, or a model of timm:, hf:, cifar:, torch:, small@ or onnx:"
            )
        return _write_probabilities(graph, results, predictor.outputs, view_temperature)

    def _write_onnx_file(self, graph: Graph, predictor: OnnxFilePredictor, views: str) -> str:
        takes = predictor.takes
        if takes.batch is not None:
            raise RelookError(
                f"{predictor.file}: expected a network that takes any number of images, got one "
                f"for batches of {takes.batch}: export it with a free batch size"
            )
        inputs = views
        if takes.dtype != torch.uint8:
            inputs = _write_normalised(graph, views, predictor)
            if takes.dtype == torch.float16:
                inputs = graph.cast(inputs, np.float16)
        if takes.layout == "nhwc":
            inputs = graph.add("Transpose", inputs, perm=[0, 2, 3, 1])
        return graph.embed(self._model_of(predictor), {takes.name: inputs}, predictor.output)

    def _model_of(self, predictor: TorchPredictor | OnnxFilePredictor) -> Any:
        key = id(predictor)
        if key not in self.models:
            if isinstance(predictor, TorchPredictor):
                data = export_network(predictor, self.example)
                self.models[key] = import_onnx().load_model_from_string(data)
            else:
                self.models[key] = _load_network(predictor.file)
        return self.models[key]


def _check_precision(predictor: TorchPredictor) -> None:
    for parameter in predictor.module.parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise RelookError(
                f"expected a network of float32 weights to export, got {parameter.dtype}: export "
                "network.float(), with the policy calibrated for it"
            )


def _write_normalised(graph: Graph, views: str, predictor: OnnxFilePredictor) -> str:
    mean, std = (np.reshape(v, (1, -1, 1, 1)) for v in predictor.normalisation or (0.0, 1.0))
    scaled = graph.add("Mul", graph.cast(views, np.float32), (1 / (255 * std)).astype(np.float32))
    return graph.add("Add", scaled, (-mean / std).astype(np.float32))


def _write_probabilities(
    graph: Graph, results: str, outputs: Outputs, view_temperature: float
) -> str:
    """Append the step from a network's outputs to probabilities, with a floor of e^−80."""
    values = graph.cast(results, np.float32)
    if outputs == "probabilities":
        total = graph.add("ReduceSum", values, np.array([-1]), keepdims=1)
        log_probs = graph.add("Log", graph.add("Div", values, total))
    else:
        log_probs = graph.add("LogSoftmax", values, axis=-1)
    floored = graph.add("Clip", log_probs, np.float32(LOG_FLOOR))
    if view_temperature == 1:
        return graph.add("Exp", floored)
    return _write_tempered(graph, floored, view_temperature)


def _write_tempered(graph: Graph, log_probs: str, view_temperature: float) -> str:
    """Append `Policy.tempered`, as probabilities."""
    scaled = graph.add("Div", log_probs, np.float32(view_temperature))
    return graph.add("Softmax", scaled, axis=-1)


def _load_network(path: Path) -> Any:
    """Read an ONNX file with its weights, and convert it if its opset is older than `OPSET`."""
    onnx = import_onnx()
    try:
        model = onnx.load(path)
        version = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        return model if version >= OPSET else onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # protobuf's and the converter's own classes
        raise RelookError(
            f"{path}: cannot be converted to ONNX opset {OPSET}: {first_line(error)}; export the "
            f"network with opset {OPSET} or later"
        ) from error
