"""Classifiers as parts of an ONNX graph, and graphs as models: operators, metadata and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from relook.models.onnx_runtime import INPUT, OUTPUT, export_network
from relook.numerics.calibration import LOG_FLOOR
from relook.transforms.onnx.graph import Graph, import_onnx

OPSET = 17
"""Known to ONNX Runtime for years (tried from 1.16 on); a network of a later one keeps its own."""
IR_VERSION = 8
LARGEST_FILE = 2**31 - 1
"""What a protobuf file can hold, in bytes."""


@dataclass(frozen=True)
class Networks:
    """Predictors' graphs, each exported or read once; `example` shows what images they get."""

    example: Tensor
    models: dict[int, Any] = field(default_factory=dict)

    def write(
        self, graph: Graph, predictor: Predictor, views: str, view_temperature: float = 1.0
    ) -> str:
        """Append a predictor: uint8 views `[n, c, h, w]` in, float32 probabilities out.

        An ensemble is one model: its probabilities are the mean of its members', and that mean
        is what the view temperature changes.
        """
        if isinstance(predictor, EnsemblePredictor):
            parts = [self.write(graph, member, views) for member in predictor.members]
            mean = graph.add("Mean", *parts)
            if view_temperature == 1:
                return mean
            return _tempered(graph, graph.add("Log", mean), view_temperature)
        if isinstance(predictor, TorchPredictor):
            _check_precision(predictor)
            results = graph.embed(self._model(predictor), {INPUT: views}, OUTPUT)
        elif isinstance(predictor, OnnxFilePredictor):
            results = self._write_file(graph, predictor, views)
        else:
            raise RelookError(
                f"expected a network to export, got a {type(predictor).__name__}: give a torch "
                "module, or a model of timm:, hf:, cifar:, torch:, small@ or onnx:"
            )
        return _probabilities(graph, results, predictor.outputs, view_temperature)

    def _write_file(self, graph: Graph, predictor: OnnxFilePredictor, views: str) -> str:
        takes = predictor.takes
        if takes.batch is not None:
            raise RelookError(
                f"{predictor.file}: expected a network that takes any number of images, got one "
                f"for batches of {takes.batch}: export it with a free batch size"
            )
        inputs = views
        if takes.dtype != torch.uint8:
            inputs = _normalised(graph, views, predictor)
            if takes.dtype == torch.float16:
                inputs = graph.cast(inputs, np.float16)
        if takes.layout == "nhwc":
            inputs = graph.add("Transpose", inputs, perm=[0, 2, 3, 1])
        return graph.embed(self._model(predictor), {takes.name: inputs}, predictor.output)

    def _model(self, predictor: TorchPredictor | OnnxFilePredictor) -> Any:
        if id(predictor) not in self.models:
            self.models[id(predictor)] = (
                import_onnx().load_model_from_string(export_network(predictor, self.example))
                if isinstance(predictor, TorchPredictor)
                else _load_network(predictor.file)
            )
        return self.models[id(predictor)]


def _check_precision(predictor: TorchPredictor) -> None:
    for parameter in predictor.module.parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32:
            raise RelookError(
                f"expected a network of float32 weights to export, got {parameter.dtype}: export "
                "network.float(), with the policy calibrated for it"
            )


def _normalised(graph: Graph, views: str, predictor: OnnxFilePredictor) -> str:
    mean, std = (np.reshape(v, (1, -1, 1, 1)) for v in predictor.normalisation or (0.0, 1.0))
    scaled = graph.add("Mul", graph.cast(views, np.float32), (1 / (255 * std)).astype(np.float32))
    return graph.add("Add", scaled, (-mean / std).astype(np.float32))


def _probabilities(graph: Graph, results: str, outputs: Outputs, view_temperature: float) -> str:
    """Append what relook makes of a model's outputs: probabilities with a floor of e^−80."""
    values = graph.cast(results, np.float32)
    if outputs == "probabilities":
        total = graph.add("ReduceSum", values, np.array([-1]), keepdims=1)
        log_probs = graph.add("Log", graph.add("Div", values, total))
    else:
        log_probs = graph.add("LogSoftmax", values, axis=-1)
    floored = graph.add("Clip", log_probs, np.float32(LOG_FLOOR))
    if view_temperature == 1:
        return graph.add("Exp", floored)
    return _tempered(graph, floored, view_temperature)


def _tempered(graph: Graph, log_probs: str, view_temperature: float) -> str:
    """Append `Policy.tempered`, as probabilities."""
    scaled = graph.add("Div", log_probs, np.float32(view_temperature))
    return graph.add("Softmax", scaled, axis=-1)


def as_model(graph: Any, networks: Sequence[Any]) -> Any:
    """Return a graph as a model, with the operators and functions of the networks inside it."""
    onnx = import_onnx()
    versions = {"": OPSET}
    for network in networks:
        for one in network.opset_import:
            domain = "" if one.domain == "ai.onnx" else one.domain
            versions[domain] = max(versions.get(domain, 0), one.version)
    return onnx.helper.make_model(
        graph,
        opset_imports=[onnx.helper.make_opsetid(*one) for one in versions.items()],
        ir_version=max([IR_VERSION, *(network.ir_version for network in networks)]),
        functions=[function for network in networks for function in network.functions],
        producer_name="relook",
    )


def set_metadata(model: Any, entries: Mapping[str, str]) -> None:
    """Write texts by key into a model, in the place of those that it has."""
    import_onnx().helper.set_model_props(model, dict(entries))


def to_bytes(model: Any) -> bytes:
    """Return a model as the bytes of a file; one above 2 GB is refused."""
    size = sum(len(one.raw_data) for graph in _graphs(model.graph) for one in graph.initializer)
    if size < LARGEST_FILE:
        data: bytes = model.SerializeToString()
        if len(data) <= LARGEST_FILE:
            return data
    raise RelookError(
        f"expected a model of at most 2 GB, what one ONNX file can hold; got {size / 1e9:.1f} GB: "
        "export with format torch-export, or a network of half precision"
    )


def _load_network(path: Path) -> Any:
    """Read an ONNX file with its weights, brought to the export's operators if it is older."""
    onnx = import_onnx()
    try:
        model = onnx.load(path)
        version = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
        return model if version >= OPSET else onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # protobuf's and the converter's own classes
        raise RelookError(
            f"{path}: cannot be brought to ONNX opset {OPSET}: {first_line(error)}; export the "
            f"network with opset {OPSET} or later"
        ) from error


def _graphs(graph: Any) -> list[Any]:
    """Return a graph and those inside its nodes."""
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found.extend(_graphs(attribute.g))
            for inner in attribute.graphs:
                found.extend(_graphs(inner))
    return found
