"""ONNX models as files: their operators, their metadata and their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relook.errors import RelookError
from relook.foundation.wording import first_line
from relook.transforms.onnx.graph import import_onnx

OPSET = 17
"""Known to ONNX Runtime for years (tried from 1.16 on); a network of a later one keeps its own."""
IR_VERSION = 8
LARGEST_FILE = 2**31 - 1
"""What a protobuf file can hold, in bytes."""


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
        "export with --format torch-export, or a network of half precision"
    )


def parse_model(data: bytes) -> Any:
    """Read a model that an exporter has written."""
    return import_onnx().load_model_from_string(data)


def load_network(path: Path) -> Any:
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
