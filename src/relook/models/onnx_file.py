"""`onnx:FILE`: a classifier as an ONNX file, or a session of one, run in ONNX Runtime.

Layout, size and type of the inputs, and the batch size, are read from the graph. The kind of
outputs is read from the graph's last node or has to be given: it is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relook.errors import (
    FileFormatError,
    MissingExtraError,
    RefusedKeywordError,
    RelookError,
    unknown_name,
)
from relook.foundation.registry import split_query
from relook.foundation.wording import first_line
from relook.io.files import one_line
from relook.io.fingerprint import fingerprint as fingerprint_of
from relook.models.base import InputSpec, Outputs, Predictor, check_outputs
from relook.models.onnx_runtime import CPU, open_session
from relook.models.predictors import (
    CallablePredictor,
    Channels,
    ModelOptions,
    TorchPredictor,
    best_device,
)
from relook.transforms.checks import check_images

LAYOUTS = ("nchw", "nhwc")
_TYPES = {
    "tensor(float)": torch.float32,
    "tensor(float16)": torch.float16,
    "tensor(uint8)": torch.uint8,
}
_ENDS: dict[str, Outputs] = {"Softmax": "probabilities", "LogSoftmax": "log_probs"}
_TRANSPARENT = ("Identity", "Cast", "Flatten", "Reshape", "Squeeze")


@dataclass(frozen=True)
class GraphInput:
    """A graph's input; None is a free dimension."""

    name: str
    dtype: torch.dtype
    layout: str
    batch: int | None
    channels: int | None
    height: int | None
    width: int | None


def _graph_input(where: str, option: str, inputs: Sequence[Any], layout: str | None) -> GraphInput:
    """Return the graph's input, from a session's inputs; `layout` is needed if it is ambiguous."""
    if len(inputs) != 1 or len(inputs[0].shape) != 4:
        shown = ", ".join(f"{one.name} {list(one.shape)}" for one in inputs)
        raise FileFormatError(
            f"{where}: expected a graph with one input [n, c, h, w] or [n, h, w, c], got {shown}"
        )
    (one,) = inputs
    if one.type not in _TYPES:
        raise FileFormatError(
            f"{where}: expected an input of type {', '.join(_TYPES)}, got {one.type}"
        )
    sizes = [side if isinstance(side, int) and side > 0 else None for side in one.shape]
    found = _layout(where, option, sizes, layout)
    batch, *rest = sizes
    channels, height, width = rest if found == "nchw" else (rest[2], rest[0], rest[1])
    return GraphInput(one.name, _TYPES[one.type], found, batch, channels, height, width)


def _layout(where: str, option: str, sizes: Sequence[int | None], said: str | None) -> str:
    if said is not None:
        if said not in LAYOUTS:
            raise unknown_name("layout", said, LAYOUTS)
        return said
    first, last = sizes[1] in (1, 3), sizes[3] in (1, 3)
    if first == last:
        shown = ", ".join("free" if side is None else str(side) for side in sizes)
        raise FileFormatError(
            f"{where}: expected an input whose second or last size is 1 or 3 channels, got "
            f"[{shown}]: say {option}layout=nchw or {option}layout=nhwc"
        )
    return "nchw" if first else "nhwc"


def graph_outputs(graph: Any, output: str) -> Outputs | None:
    """Return an output's kind, as far as the last node of an ONNX graph shows it."""
    made_by = {name: node for node in graph.node for name in node.output}
    node = made_by.get(output)
    while node is not None and node.op_type in _TRANSPARENT:
        node = made_by.get(node.input[0])
    if node is None:
        return None
    if node.op_type == "Log":
        before = made_by.get(node.input[0])
        return "log_probs" if before is not None and before.op_type == "Softmax" else None
    return _ENDS.get(node.op_type)


def external_files(graph: Any, directory: Path) -> list[Path]:
    """Return the files with an ONNX file's external weights, in order."""
    names = {
        entry.value
        for tensor in _tensors(graph)
        for entry in tensor.external_data
        if entry.key == "location"
    }
    return [directory / name for name in sorted(names)]


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield every tensor stored in a graph, its nodes and its inner graphs."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            yield attribute.t
            yield from attribute.tensors
            for inner in (attribute.g, *attribute.graphs):
                if inner.node or inner.initializer:
                    yield from _tensors(inner)


FORM = "onnx:FILE[?layout=nchw|nhwc&output=NAME]"
_PROVIDERS = {"cpu": CPU, "cuda": "CUDAExecutionProvider"}


class OnnxFilePredictor:
    """A session of ONNX Runtime as a predictor.

    `file` is the graph's file, `takes` its input, and `output` the name of the output used. Inputs
    of a floating type are (images / 255 − mean) / std; inputs of type uint8 are the images.
    """

    normalisation: tuple[float | tuple[float, ...], float | tuple[float, ...]] | None
    unstated: tuple[str, ...] = ()
    is_bare = False

    def __init__(
        self, session: _Session, options: ModelOptions, outputs: Outputs, content: str
    ) -> None:
        takes = session.takes
        known = None
        if takes.height is not None and takes.width is not None:
            known = InputSpec((takes.height, takes.width), channels=takes.channels)
        self.input = options.input_spec(known)
        self.classes = session.classes
        self.outputs = outputs
        self._file, self.takes, self.output = session.file, takes, session.output
        self._inner: Predictor
        if takes.dtype == torch.uint8:
            options.refuse("an ONNX graph of uint8 inputs", "mean", "std")
            self.normalisation = None
            self._inner = CallablePredictor(session, outputs=outputs, classes=session.classes)
        else:
            inner = TorchPredictor(
                session,
                mean=options.mean,
                std=options.std,
                outputs=outputs,
                classes=session.classes,
            )
            self.normalisation, self._inner = inner.normalisation, inner
            self.unstated = inner.unstated
        self.fingerprint = fingerprint_of(
            "ONNX file", content, self.normalisation, outputs, takes.layout
        )

    @property
    def file(self) -> Path:
        """The graph's file; raises for a session made from bytes, which has none."""
        if self._file is None:
            raise RelookError(
                "expected a session made from a file, got one of bytes: use onnx:FILE"
            )
        return self._file

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        check_images(images)
        wanted = (self.takes.channels, self.takes.height, self.takes.width)
        got = tuple(images.shape[1:])
        if any(w not in (None, g) for w, g in zip(wanted, got, strict=True)):
            shown = " × ".join("any" if side is None else str(side) for side in wanted)
            raise RelookError(
                f"expected images of {shown} (channels × height × width), as the ONNX graph "
                f"takes; got {' × '.join(map(str, got))}: resize or convert the images"
            )
        return self._inner(images)


class _Session(nn.Module):
    """Inputs `[n, c, h, w]` → a graph's output; batches are padded if their size is fixed."""

    def __init__(
        self, session: Any, file: Path | None, takes: GraphInput, output: str, classes: int | None
    ) -> None:
        super().__init__()
        self.session, self.file, self.takes = session, file, takes
        self.output, self.classes = output, classes

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with the whole graph, from which another process opens a session."""
        content = getattr(self.session, "_model_bytes", None)
        if content is None and self.file is not None:
            content = self.file.read_bytes()
        return {**self.__dict__, "session": (content, self.session.get_providers())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.session = open_session(*state["session"])

    def forward(self, inputs: Tensor) -> Tensor:
        inputs = inputs.to("cpu", self.takes.dtype)
        if self.takes.layout == "nhwc":
            inputs = inputs.permute(0, 2, 3, 1)
        if self.takes.batch is None:
            return self._run(inputs)
        parts = [
            self._padded(part, self.takes.batch) for part in torch.split(inputs, self.takes.batch)
        ]
        return torch.cat(parts)

    def _padded(self, inputs: Tensor, batch: int) -> Tensor:
        missing = batch - len(inputs)
        filled = torch.cat([inputs, inputs[-1:].expand(missing, -1, -1, -1)])
        return self._run(filled)[: len(inputs)]

    def _run(self, inputs: Tensor) -> Tensor:
        feed = {self.takes.name: inputs.contiguous().numpy()}
        return torch.from_numpy(self.session.run([self.output], feed)[0])


def load_onnx(rest: str, options: ModelOptions) -> Predictor:
    """Load an ONNX file; `options.outputs` is needed unless the graph ends in a softmax."""
    options.refuse("onnx:", "pretrained")
    if options.outputs is not None:
        check_outputs(options.outputs)
    name, said = split_query(rest, "onnx", {"layout": LAYOUTS, "output": ()})
    path = Path(name).expanduser()
    if not path.is_file():
        raise RelookError(f"no such ONNX file: {path}")
    onnx, onnxruntime = _import_onnx()
    graph = _read(onnx, path)
    session = _open(onnxruntime, path, options.device)
    module = _module(session, path, str(path), f"onnx:{path}?", **said)
    outputs = _outputs(path, graph_outputs(graph, module.output), options.outputs)
    content = _file_content(graph, path, module.output)
    predictor = OnnxFilePredictor(module, options, outputs, content)
    predictor.is_bare = True
    return predictor


def _file_content(graph: Any, path: Path, output: str) -> str:
    files = (path, *external_files(graph, path.parent))
    return fingerprint_of(output, *(np.memmap(file, np.uint8, "r") for file in files))


def from_session(
    session: Any,
    *,
    outputs: Outputs,
    mean: Channels | None = None,
    std: Channels | None = None,
    layout: str | None = None,
    output: str | None = None,
    fingerprint: str | None = None,
) -> Predictor:
    """Return an `onnxruntime.InferenceSession` as a predictor, with the session's own providers.

    `outputs` is the kind of its outputs; `layout` and `output` are needed if the graph is
    ambiguous, and a `fingerprint` if the session does not keep the file or bytes it was made from.
    """
    check_outputs(outputs)
    module = _module(session, _file_of(session), "the ONNX session", "", layout, output)
    content = fingerprint or _session_content(session, module.output)
    return OnnxFilePredictor(module, ModelOptions(mean=mean, std=std), outputs, content)


def _file_of(session: Any) -> Path | None:
    path = getattr(session, "_model_path", None)
    return Path(path) if isinstance(path, str) and Path(path).is_file() else None


def _session_content(session: Any, output: str) -> str:
    # onnxruntime keeps the source of a session, but has no public name for it.
    content, path = getattr(session, "_model_bytes", None), _file_of(session)
    if isinstance(content, bytes):
        return fingerprint_of(output, content)
    if path is not None:
        onnx, _ = _import_onnx()
        return _file_content(_read(onnx, path), path, output)
    raise RelookError(
        "expected a session made from a file or bytes, got one of unknown source: give "
        "fingerprint=, a text that stands for its weights"
    )


def _import_onnx() -> tuple[Any, Any]:
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError(error.name or "onnxruntime", "onnx", "onnx:FILE") from None
    return onnx, onnxruntime


def _read(onnx: Any, path: Path) -> Any:
    try:
        graph = onnx.load(path, load_external_data=False).graph
    except Exception as error:  # protobuf's own classes
        raise FileFormatError(f"{path}: expected an ONNX file: {first_line(error)}") from None
    if not graph.node:
        raise FileFormatError(f"{path}: expected an ONNX file, got one without a graph")
    return graph


def _open(onnxruntime: Any, path: Path, device: str) -> Any:
    known = onnxruntime.get_available_providers()
    if device == "auto":
        device = "cuda" if best_device() == "cuda" and _PROVIDERS["cuda"] in known else "cpu"
    provider = _PROVIDERS.get(device.partition(":")[0], "")
    if provider not in known:
        raise RelookError(f"cannot use device {device!r}: this ONNX Runtime has no provider for it")
    try:
        return open_session(path, [provider])
    except RelookError as error:
        raise FileFormatError(f"{path}: {error}") from None


def _module(
    session: Any,
    file: Path | None,
    where: str,
    option: str,
    layout: str | None = None,
    output: str | None = None,
) -> _Session:
    """Return a session as a module; raise if its graph needs options, spelled as `option` shows."""
    takes = _graph_input(where, option, session.get_inputs(), layout)
    found = session.get_outputs()
    names = [one.name for one in found]
    if output is not None and output not in names:
        raise unknown_name(f"output of {where}", output, names)
    if output is None and len(found) != 1:
        raise FileFormatError(
            f"{where}: expected a graph with one output, got {', '.join(map(one_line, names))}: "
            f"say {option}output=NAME"
        )
    chosen = found[0 if output is None else names.index(output)]
    last = chosen.shape[-1] if len(chosen.shape) == 2 else None
    classes = last if isinstance(last, int) and last > 0 else None
    return _Session(session, file, takes, chosen.name, classes)


def _outputs(path: Path, seen: Outputs | None, said: Outputs | None) -> Outputs:
    if seen is None and said is None:
        raise RelookError(
            f"{path}: the graph does not say what it returns: say which with outputs "
            "(--outputs): logits, probabilities or log_probs"
        )
    if seen is not None and said not in (None, seen):
        raise RefusedKeywordError(
            f"{path}: expected outputs {seen}, as the graph ends in a softmax; got {said}: "
            "leave outputs out",
            "outputs",
        )
    return said or seen or "logits"
