"""What an ONNX graph says of itself: its input, what its outputs are, the files next to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from relook.errors import FileFormatError, unknown_name
from relook.models.base import Outputs

LAYOUTS = ("nchw", "nhwc")
_TYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(uint8)": torch.uint8,
}
_ENDS: dict[str, Outputs] = {"Softmax": "probabilities", "LogSoftmax": "log_probs"}
_PASSING_ON = ("Identity", "Cast", "Flatten", "Reshape", "Squeeze")


@dataclass(frozen=True)
class GraphInput:
    """What a graph takes; None stands for a number that is free."""

    name: str
    dtype: torch.dtype
    layout: str
    batch: int | None
    channels: int | None
    height: int | None
    width: int | None


@dataclass(frozen=True)
class GraphSource:
    """Where a graph comes from: its name for people, and how its options are written."""

    name: str
    option: str = ""

    def __str__(self) -> str:
        return self.name


def graph_input(path: GraphSource, inputs: Sequence[Any], layout: str | None) -> GraphInput:
    """Return what the graph takes, from a session's inputs; `layout` where it cannot be seen."""
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        shown = ", ".join(f"{one.name} {list(one.shape)}" for one in inputs)
        raise FileFormatError(
            f"{path}: expected a graph with one input [n, c, h, w] or [n, h, w, c], got {shown}"
        )
    (one,) = inputs
    if one.type not in _TYPES:
        raise FileFormatError(
            f"{path}: expected an input of type {', '.join(_TYPES)}, got {one.type}"
        )
    sizes = [side if isinstance(side, int) and side > 0 else None for side in one.shape]
    found = _layout(path, sizes, layout)
    batch, *rest = sizes
    channels, height, width = rest if found == "nchw" else (rest[2], rest[0], rest[1])
    return GraphInput(one.name, _TYPES[one.type], found, batch, channels, height, width)


def _layout(path: GraphSource, sizes: Sequence[int | None], said: str | None) -> str:
    if said is not None:
        if said not in LAYOUTS:
            raise unknown_name("layout", said, LAYOUTS)
        return said
    first, last = sizes[1] in (1, 3), sizes[3] in (1, 3)
    if first == last:
        shown = ", ".join("free" if side is None else str(side) for side in sizes)
        raise FileFormatError(
            f"{path}: expected an input whose second or last size is 1 or 3 channels, got "
            f"[{shown}]: say {path.option}layout=nchw or {path.option}layout=nhwc"
        )
    return "nchw" if first else "nhwc"


def end_of_graph(graph: Any, output: str) -> Outputs | None:
    """Return what an output of an ONNX graph is, as far as its last node shows."""
    made_by = {name: node for node in graph.node for name in node.output}
    node = made_by.get(output)
    while node is not None and node.op_type in _PASSING_ON:
        node = made_by.get(node.input[0])
    if node is None:
        return None
    if node.op_type == "Log":
        before = made_by.get(node.input[0])
        return "log_probs" if before is not None and before.op_type == "Softmax" else None
    return _ENDS.get(node.op_type)


def outside_files(graph: Any, directory: Path) -> list[Path]:
    """Return the files next to an ONNX file that hold its weights, in order."""
    names = {
        entry.value
        for tensor in _tensors(graph)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [directory / name for name in sorted(names)]


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield every tensor that a graph stores, those of its nodes and inner graphs too."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)
