"""Real model files, made for the tests."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from relook.errors import MissingExtraError
from relook.models.hf_models import import_transformers


def import_onnx() -> Any:
    """Return onnx, or raise what a user without it sees."""
    try:
        import onnx
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(str(error.name), "onnx", "the test") from None
    return onnx


def export_onnx(
    module: nn.Module,
    path: Path,
    shape: Sequence[int],
    *,
    free_batch: bool = True,
    outputs: Sequence[str] = ("outputs",),
    dtype: torch.dtype = torch.float32,
    opset: int | None = None,
) -> None:
    """Export a module as users do, for inputs of `shape`."""
    import_onnx()
    free = {name: {0: "n"} for name in ("images", *outputs)} if free_batch else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            (torch.zeros(*shape, dtype=dtype),),
            path,
            input_names=["images"],
            output_names=list(outputs),
            dynamic_axes=free,
            opset_version=opset,
            dynamo=False,
        )


def linear_graph(
    path: Path,
    shape: Sequence[int | str],
    weights: np.ndarray[Any, Any],
    *,
    dtype: str = "FLOAT",
    end: Sequence[str] = (),
) -> None:
    """Write a graph: flatten, convert to float, one product with `weights`, the nodes of `end`."""
    onnx = import_onnx()
    helper, kinds = onnx.helper, onnx.TensorProto
    names = [f"value{i}" for i in range(len(end))] + ["outputs"]
    nodes = [
        helper.make_node("Flatten", ["images"], ["flat"], axis=1),
        helper.make_node("Cast", ["flat"], ["float"], to=kinds.FLOAT),
        helper.make_node("MatMul", ["float", "weights"], names[:1]),
        *(helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(end)),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("images", getattr(kinds, dtype), list(shape))],
        [helper.make_tensor_value_info("outputs", kinds.FLOAT, [shape[0], weights.shape[1]])],
        [onnx.numpy_helper.from_array(weights.astype(np.float32), "weights")],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def save_hf(directory: Path, *, head: bool = True) -> None:
    """Save a tiny vision transformer with an image processor, as its training would."""
    transformers = import_transformers()
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=32,
        patch_size=8,
        num_labels=6,
    )
    kind = transformers.ViTForImageClassification if head else transformers.ViTModel
    processor = transformers.ViTImageProcessor(
        size={"height": 32, "width": 32}, image_mean=[0.5, 0.4, 0.3], image_std=[0.2, 0.3, 0.4]
    )
    kind(config).save_pretrained(directory)
    processor.save_pretrained(directory)
