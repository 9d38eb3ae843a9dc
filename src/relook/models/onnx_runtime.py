"""Torch modules exported to ONNX, and the sessions of ONNX Runtime that run them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relook.errors import RelookError, install_command
from relook.foundation.wording import first_line
from relook.io.files import one_line
from relook.io.fingerprint import fingerprint
from relook.models.base import InputSpec, Outputs, to_log_probs
from relook.models.predictors import TorchPredictor
from relook.transforms.checks import check_images

CPU = "CPUExecutionProvider"
OPSET = 17
"""Old enough for any ONNX Runtime from 1.16 on; an ONNX file of a later opset keeps its own."""
INPUT, OUTPUT = "images", "outputs"
"""Names of the input and the output of an exported network."""


def is_installed() -> bool:
    """Whether models can be exported and run in ONNX Runtime."""
    return find_spec("onnx") is not None and find_spec("onnxruntime") is not None


class OnnxPredictor:
    """An ONNX graph as a predictor: uint8 images `[n, c, h, w]` in, `outputs` `[n, class]` out.

    It runs on the CPU with torch's number of threads.
    """

    def __init__(
        self,
        graph: bytes,
        *,
        outputs: Outputs,
        fingerprint: str,
        classes: int | None = None,
        input: InputSpec | None = None,
    ) -> None:
        self.fingerprint = fingerprint
        self.input = input
        self.classes = classes
        self._outputs = outputs
        self._graph = graph
        self._session = open_session(graph)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._session = open_session(self._graph)

    def __call__(self, images: Tensor) -> Tensor:
        """Return float32 log-probabilities `[n, class]` for uint8 images `[n, c, h, w]`."""
        check_images(images)
        try:
            (results,) = self._session.run([OUTPUT], {INPUT: images.numpy(force=True)})
        except Exception as error:  # onnxruntime's own classes share no base
            raise RelookError(
                f"ONNX Runtime failed on images {list(images.shape)}: {first_line(error)}"
            ) from error
        return to_log_probs(torch.from_numpy(results), self._outputs, len(images), self.classes)


def to_onnx(predictor: TorchPredictor, images: Tensor) -> OnnxPredictor:
    """Return a torch predictor's module, with its normalisation, as a graph in ONNX Runtime.

    `images` (uint8, at least one) are an example; the number of images is free. The fingerprint is
    derived from the predictor's.
    """
    return OnnxPredictor(
        export_network(predictor, images),
        outputs=predictor.outputs,
        fingerprint=fingerprint("ONNX Runtime", predictor.fingerprint),
        classes=predictor.classes,
        input=predictor.input,
    )


def export_network(predictor: TorchPredictor, images: Tensor) -> bytes:
    """Return a torch predictor's module, with its normalisation, as an ONNX model.

    Its input `images` is uint8 `[n, c, h, w]` like the example `images`, n free; its output
    `outputs` is the module's.
    """
    if not is_installed():
        raise RelookError(f"ONNX Runtime is not installed: {install_command('onnx')}")
    module = _WithNormalisation(predictor, images.shape[1]).eval()
    any_number = {0: "n"}
    with (
        tempfile.TemporaryDirectory() as directory,
        warnings.catch_warnings(),
        torch.inference_mode(),
    ):
        file = Path(directory) / "model.onnx"
        warnings.simplefilter("ignore")  # the exporter's hints are for its developers
        try:
            torch.onnx.export(
                module,
                (images[:2].cpu(),),
                file,
                input_names=[INPUT],
                output_names=[OUTPUT],
                dynamic_axes={INPUT: any_number, OUTPUT: any_number},
                opset_version=OPSET,
                dynamo=False,  # the newer exporter needs a further package
            )
        except Exception as error:  # an exporter meets arbitrary modules, and fails in many ways
            raise RelookError(
                "the network cannot be exported to ONNX: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error
        return file.read_bytes()


class _WithNormalisation(nn.Module):
    """uint8 images → the module's outputs; one multiplication and one addition normalise."""

    scale: Tensor
    shift: Tensor

    def __init__(self, predictor: TorchPredictor, channels: int) -> None:
        super().__init__()
        mean, std = (
            torch.tensor(values, dtype=torch.float64).expand(channels).reshape(1, -1, 1, 1)
            for values in predictor.normalisation
        )
        self.module = predictor.module
        self.register_buffer("scale", (1 / (255 * std)).float())
        self.register_buffer("shift", (-mean / std).float())

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.module(images.float() * self.scale + self.shift)
        return outputs


def open_session(
    graph: Path | bytes, providers: Sequence[str] = (CPU,), *, spinning: bool = True
) -> Any:
    """Return a session of ONNX Runtime, by default on the CPU, with torch's number of threads.

    Without `spinning`, its threads sleep between calls, so that they do not slow other sessions.
    """
    try:
        import onnxruntime  # type: ignore[import-untyped]
    except ImportError:
        raise RelookError(f"ONNX Runtime is not installed: {install_command('onnx')}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    if not spinning:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # errors are raised, and then reported in one line
    try:
        return onnxruntime.InferenceSession(graph, options, providers=list(providers))
    except Exception as error:  # onnxruntime's own classes share no base
        raise RelookError(
            f"ONNX Runtime cannot load the graph: {one_line(first_line(error))}"
        ) from error
