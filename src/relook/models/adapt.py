"""Whatever a user has for a model, as a predictor: the one place that knows all kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from relook.errors import RelookError, unknown_name
from relook.models.base import Predictor
from relook.models.ensemble import EnsemblePredictor
from relook.models.hf_models import Logits, hf_fingerprint, is_hf_network
from relook.models.onnx_file import from_session
from relook.models.specs import full_spec, load_model
from relook.models.torch_module import CallablePredictor, TorchPredictor

_CALLABLE_OPTIONS = ("outputs", "fingerprint", "classes")
_TORCH_OPTIONS = ("mean", "std", "device", *_CALLABLE_OPTIONS)
_SESSION_OPTIONS = ("mean", "std", "outputs", "layout", "output", "fingerprint")
MODEL_OPTIONS = frozenset((*_TORCH_OPTIONS, *_SESSION_OPTIONS))
"""All keywords that a model in memory may have."""
_SPEC_OPTIONS = ("mean", "std", "outputs", "device", "size", "crop", "pretrained")


def as_predictor(model: object, **options: Any) -> Predictor:
    """Return anything that predicts as a predictor; several in a list are an ensemble.

    It is a torch module (of timm or Hugging Face too), an ONNX Runtime session, a path to an ONNX
    file, a spec such as `timm:NAME@FILE`, a function or a predictor. `options` are those of
    TorchPredictor for a module, of `load_model` for a path or a spec, of `onnx_file.from_session`
    for a session and of CallablePredictor for a function; the last two must say their `outputs`.
    A predictor takes none.
    """
    if isinstance(model, list | tuple):
        return EnsemblePredictor([as_predictor(member, **options) for member in model])
    if isinstance(model, nn.Module):
        make = _from_hf if is_hf_network(model) else TorchPredictor
        return _build(make, model, options, _TORCH_OPTIONS)
    if isinstance(model, str | Path):
        return _build(load_model, model_spec(model), options, _SPEC_OPTIONS)
    if type(model).__module__.startswith("onnxruntime."):
        _ask_for_outputs("a session", options)
        return _build(from_session, model, options, _SESSION_OPTIONS)
    if isinstance(model, Predictor):
        return _build(lambda predictor: predictor, model, options, ())
    if not callable(model):
        raise RelookError(
            "expected a model as a torch module, an ONNX Runtime session, a function, a predictor "
            f"or a text like timm:NAME@FILE, got {type(model).__name__}"
        )
    _ask_for_outputs("a function", options)
    return _build(CallablePredictor, model, options, _CALLABLE_OPTIONS)


def model_spec(model: object) -> Any:
    """Return the spec of a model that has one (several: a list of them), else None."""
    if isinstance(model, list | tuple):
        specs = [model_spec(member) for member in model]
        return specs if all(specs) else None
    if not isinstance(model, str | Path):
        return None
    return full_spec(str(model))


def _from_hf(network: Any, **options: Any) -> Predictor:
    known = {
        "classes": network.config.num_labels,
        "fingerprint": hf_fingerprint(network, options.get("mean"), options.get("std")),
    }
    return TorchPredictor(Logits(network), **{**known, **options})


def _ask_for_outputs(model: str, options: dict[str, Any]) -> None:
    if "outputs" not in options:
        raise RelookError(
            f"expected outputs='logits', 'probabilities' or 'log_probs' with {model}, got "
            "nothing: say which it returns"
        )


def _build(
    make: Callable[..., Predictor], model: object, options: dict[str, Any], known: Sequence[str]
) -> Predictor:
    for name in options:
        if name not in known:
            if name in _TORCH_OPTIONS:
                raise RelookError(
                    f"expected no {name} with a {type(model).__name__}, which brings its own, "
                    f"got {options[name]!r}"
                )
            raise unknown_name("keyword", name, known)
    return make(model, **options)
