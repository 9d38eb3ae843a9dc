"""Models by name: `timm:resnet50@FILE`, `onnx:FILE`, `torch:module:factory@FILE` …, one table."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from relook.errors import RelookError, unknown_name
from relook.foundation.registry import Table
from relook.models import cifar_networks, hf_models, onnx_file, timm_models, torch_factory
from relook.models.base import Outputs, Predictor
from relook.models.options import ModelOptions
from relook.models.small import load_small
from relook.models.torch_module import Channels, TorchPredictor


@dataclass(frozen=True)
class ModelSource:
    """One row: `load` gets what follows the prefix; `form` shows how a spec looks."""

    prefix: str
    form: str
    load: Callable[[str, ModelOptions], Predictor]


def full_spec(spec: str) -> str:
    """Return the spec of a graph's file that was given alone."""
    alone = ":" not in spec and spec.endswith(".onnx") and Path(spec).expanduser().is_file()
    return f"onnx:{spec}" if alone else spec


def load_model(
    spec: str,
    *,
    mean: Channels | None = None,
    std: Channels | None = None,
    outputs: Outputs | None = None,
    device: str = "cpu",
    size: int | tuple[int, int] | None = None,
    crop: float | None = None,
    pretrained: bool = False,
) -> Predictor:
    """Return the predictor that a spec names; `mean` and `std` are on the scale 0…1.

    What is left out comes from the source, where it knows: outputs are logits unless an ONNX
    graph says otherwise. `size` (pixels) and `crop` (a share) go to what reads images.
    """
    if not spec.isprintable():
        raise RelookError(f"expected a model spec of printable characters, got {spec!r}")
    prefix, *rest = re.split("[:@]", spec, maxsplit=1)
    source = MODEL_SOURCES.get(prefix)
    if source is None:
        raise unknown_name("model source", prefix, MODEL_SOURCES)
    if not any(rest):
        raise RelookError(f"expected a model as {source.form}, got {spec!r}")
    options = ModelOptions(mean, std, outputs, device, size, crop, pretrained)
    return source.load(rest[0], options)


def _load_small(rest: str, options: ModelOptions) -> Predictor:
    """Load a network of relook's own; it brings its normalisation."""
    options.refuse("small@FILE", "mean", "std", "outputs", "pretrained")
    network = load_small(Path(rest).expanduser())
    return TorchPredictor(network, device=options.device, classes=network.classes)


_ROWS = (
    ModelSource("torch", torch_factory.FORM, torch_factory.load_torch),
    ModelSource("timm", timm_models.FORM, timm_models.load_timm),
    ModelSource("onnx", onnx_file.FORM, onnx_file.load_onnx),
    ModelSource("hf", hf_models.FORM, hf_models.load_hf),
    ModelSource("cifar", cifar_networks.CIFAR_FORM, cifar_networks.load_cifar),
    ModelSource("small", "small@FILE.safetensors", _load_small),
)


MODEL_SOURCES = Table("model source", _ROWS, key="prefix")
"""All model sources by the prefix of their specs."""


def register_model_source(
    scheme: str, load: Callable[[str], object], *, form: str | None = None
) -> Callable[[str], object]:
    """Have `scheme:REST` name a model, wherever a model can be named by a text.

    `load(REST)` returns a torch module, to which mean, std, outputs, device, size and crop apply
    as to any other, or a `Predictor`, which brings its own. `form` shows how such a text looks.
    Returns the function.
    """
    shown = form or f"{scheme}:NAME"

    def adapted(rest: str, options: ModelOptions) -> Predictor:
        options.refuse(f"{scheme}:", "pretrained")
        model = load(rest)
        if isinstance(model, nn.Module):
            return options.predictor(model)
        options.refuse(f"{scheme}:", "mean", "std", "outputs")
        if not isinstance(model, Predictor):
            raise RelookError(
                f"{scheme}:{rest}: expected its source to return a torch module or a predictor, "
                f"got {type(model).__name__}"
            )
        return model

    MODEL_SOURCES.add(ModelSource(scheme, shown, adapted))
    return load
