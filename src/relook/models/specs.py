"""The table of model sources (`timm:resnet50@FILE` …), and any user's model as a predictor."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from relook.errors import RefusedKeywordError, RelookError, unknown_name
from relook.foundation.registry import Table
from relook.models import cifar_networks, hf_models, onnx_file, timm_models, torch_factory
from relook.models.base import Outputs, Predictor
from relook.models.predictors import (
    CallablePredictor,
    Channels,
    EnsemblePredictor,
    ModelOptions,
    TorchPredictor,
)
from relook.models.small import load_small

_CALLABLE_OPTIONS = ("outputs", "fingerprint", "classes")
_TORCH_OPTIONS = ("mean", "std", "device", *_CALLABLE_OPTIONS)
_SESSION_OPTIONS = ("mean", "std", "outputs", "layout", "output", "fingerprint")
MODEL_OPTIONS = frozenset((*_TORCH_OPTIONS, *_SESSION_OPTIONS))
"""All keywords for models in memory."""
_WEIGHTS = (".th", ".pt", ".pth", ".ckpt", ".safetensors", ".bin")
_SPEC_OPTIONS = ("mean", "std", "outputs", "device", "size", "crop", "pretrained")


@dataclass(frozen=True)
class ModelSource:
    """One row: `load` gets the rest of the spec after the prefix; `form` shows a whole spec."""

    prefix: str
    form: str
    load: Callable[[str, ModelOptions], Predictor]


def full_spec(spec: str) -> str:
    """Return a spec with its prefix, which may be left out for an ONNX file."""
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

    Options left out come from the source: outputs are logits unless an ONNX graph shows otherwise.
    `size` (pixels) and `crop` (a share) decide how images are read.
    """
    if not spec.isprintable():
        raise RelookError(f"expected a model spec of printable characters, got {spec!r}")
    prefix, *rest = re.split("[:@]", spec, maxsplit=1)
    source = MODEL_SOURCES.get(prefix)
    if source is None:
        if not rest and spec.lower().endswith(_WEIGHTS):
            raise RelookError(
                f"expected a network with its weights, got {spec!r}, weights alone: say "
                f"timm:NAME@{spec}, or torch:MODULE:FUNCTION@{spec} for a network of your own"
            )
        raise unknown_name("model source", prefix, MODEL_SOURCES)
    if not any(rest):
        raise RelookError(f"expected a model as {source.form}, got {spec!r}")
    options = ModelOptions(mean, std, outputs, device, size, crop, pretrained)
    return source.load(rest[0], options)


def _load_small(rest: str, options: ModelOptions) -> Predictor:
    """Load a network of relook's own, which includes its normalisation."""
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
    """Register `scheme:REST` as a spec, wherever a spec can name a model; return `load`.

    `load(REST)` returns a torch module, to which mean, std, outputs, device, size and crop apply
    as to any other, or a `Predictor`, which brings its own. `form` shows a whole spec.
    """
    shown = form or f"{scheme}:NAME"

    def adapted(rest: str, options: ModelOptions) -> Predictor:
        options.refuse(f"{scheme}:", "pretrained")
        model = load(rest)
        if isinstance(model, nn.Module):
            predictor = options.predictor(model)
            predictor.is_bare = True
            return predictor
        options.refuse(f"{scheme}:", "mean", "std", "outputs")
        if not isinstance(model, Predictor):
            raise RelookError(
                f"{scheme}:{rest}: expected its source to return a torch module or a predictor, "
                f"got {type(model).__name__}"
            )
        return model

    MODEL_SOURCES.add(ModelSource(scheme, shown, adapted))
    return load


def as_predictor(model: object, **options: Any) -> Predictor:
    """Return a model of any kind as a predictor; a list of models is an ensemble.

    A model is a torch module (also of timm or Hugging Face), an ONNX Runtime session, a path to an
    ONNX file, a spec such as `timm:NAME@FILE`, a function or a predictor. `options` are those of
    TorchPredictor for a module, of `load_model` for a path or a spec, of `onnx_file.from_session`
    for a session and of CallablePredictor for a function; the last two need `outputs`. A predictor
    takes none.
    """
    if isinstance(model, list | tuple):
        return EnsemblePredictor([as_predictor(member, **options) for member in model])
    if isinstance(model, nn.Module):
        make = _from_hf if hf_models.is_hf_network(model) else TorchPredictor
        return _build(make, model, options, _TORCH_OPTIONS)
    if isinstance(model, str | Path):
        return _build(load_model, model_spec(model), options, _SPEC_OPTIONS)
    if type(model).__module__.startswith("onnxruntime."):
        _require_outputs("a session", options)
        return _build(onnx_file.from_session, model, options, _SESSION_OPTIONS)
    if isinstance(model, Predictor):
        return _build(lambda predictor: predictor, model, options, ())
    if not callable(model):
        raise RelookError(
            "expected a model as a torch module, an ONNX Runtime session, a function, a predictor "
            f"or a text like timm:NAME@FILE, got {type(model).__name__}"
        )
    _require_outputs("a function", options)
    return _build(CallablePredictor, model, options, _CALLABLE_OPTIONS)


def model_spec(model: object) -> Any:
    """Return the spec of a model, or a list of specs for several; None without one."""
    if isinstance(model, list | tuple):
        specs = [model_spec(member) for member in model]
        return specs if all(specs) else None
    if not isinstance(model, str | Path):
        return None
    return full_spec(str(model))


def _from_hf(network: Any, **options: Any) -> Predictor:
    known = {
        "classes": network.config.num_labels,
        "fingerprint": hf_models.hf_fingerprint(network, options.get("mean"), options.get("std")),
    }
    return TorchPredictor(hf_models.Logits(network), **{**known, **options})


def _require_outputs(model: str, options: dict[str, Any]) -> None:
    if "outputs" not in options:
        raise RelookError(
            f"expected outputs='logits', 'probabilities' or 'log_probs' with {model}, got "
            "nothing: say which it returns"
        )


def _build(
    make: Callable[..., Predictor], model: object, options: dict[str, Any], known: Sequence[str]
) -> Predictor:
    refused = [name for name in options if name not in known]
    if refused:
        name = refused[0]
        text = str(unknown_name("keyword", name, known))
        if name in _TORCH_OPTIONS:
            text = (
                f"expected no {name} with a {type(model).__name__}, which brings its own, "
                f"got {options[name]!r}"
            )
        raise RefusedKeywordError(text, *refused)
    return make(model, **options)
