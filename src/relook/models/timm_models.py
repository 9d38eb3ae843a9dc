"""`timm:NAME@checkpoint`: any classifier of timm, with timm's own settings for its images."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor, nn

from relook.errors import MissingExtraError, RelookError
from relook.foundation.wording import first_line
from relook.io.files import one_line
from relook.io.fingerprint import fingerprint
from relook.models.base import InputSpec, Predictor
from relook.models.predictors import ModelOptions
from relook.models.weights import load_weights, read_weights, rows_of
from relook.transforms.centre_crop import INTERPOLATIONS

FORM = "timm:NAME[@checkpoint]"


def load_timm(rest: str, options: ModelOptions) -> Predictor:
    """Load a timm network with a file's weights, or with timm's own if `pretrained`.

    Input size, crop share, interpolation, mean and std are timm's unless the options override
    them; the numbers of classes and channels are the checkpoint's.
    """
    name, _, checkpoint = rest.partition("@")
    if not name or ("@" in rest and not checkpoint):
        raise RelookError(f"expected a model as {FORM}, got 'timm:{rest}'")
    timm = import_timm()
    _check_name(timm, name)
    if bool(checkpoint) == options.pretrained:
        raise RelookError(
            f"expected weights for timm:{name}: either timm:{name}@FILE or pretrained=True "
            f"(--pretrained), got {'both' if checkpoint else 'neither'}"
        )
    weights = read_weights(checkpoint) if checkpoint else {}
    shape = _shape(timm.models.get_pretrained_cfg(name), weights)
    network = _build(timm, name, shape, options.pretrained)
    if checkpoint:
        load_weights(network, weights, checkpoint)
    settings = timm.data.resolve_model_data_config(network)
    channels, height, width = settings["input_size"]
    how = settings["interpolation"]
    known = InputSpec(
        (height, width),
        min(1.0, settings["crop_pct"]),
        how if how in INTERPOLATIONS else "bicubic",
        shape.get("in_chans", channels),
    )
    mean, std = options.normalisation(settings["mean"], settings["std"])
    return options.predictor(
        network,
        known=known,
        mean=mean,
        std=std,
        classes=int(network.num_classes),  # type: ignore[arg-type]  # every timm network has it
        # Networks of two names can have the same class and state dict, but different computations.
        fingerprint=fingerprint("timm", name, network.state_dict(), mean, std, options.outputs),
    )


def import_timm() -> Any:
    """Return timm, or raise an error that says how to install it."""
    try:
        import timm
        import timm.data
    except ImportError as error:
        if error.name not in ("timm", "torchvision"):
            raise RelookError(f"importing timm failed: {first_line(error)}") from error
        raise MissingExtraError(error.name, "timm", "timm:NAME") from None
    return timm


def _check_name(timm: Any, name: str) -> None:
    if timm.is_model(name):
        return
    near = get_close_matches(name, timm.list_models(), n=1)
    hint = f"did you mean {near[0]!r}?" if near else "timm.list_models() lists them"
    raise RelookError(f"unknown timm network {one_line(name)!r}: {hint}")


def _build(timm: Any, name: str, shape: Mapping[str, int], pretrained: bool) -> nn.Module:
    try:
        with torch.random.fork_rng(devices=()):  # timm draws weights from the global generator
            network: nn.Module = timm.create_model(name, pretrained=pretrained, **shape)
    except Exception as error:  # timm's networks and the network connection fail in many ways
        doing = "fetching its weights" if pretrained else "building the network"
        raise RelookError(
            f"timm:{name}: {doing} failed: {type(error).__name__}: {first_line(error)}"
            + ("; without a network, give timm:NAME@FILE" if pretrained else "")
        ) from error
    if not getattr(network, "num_classes", 0):
        raise RelookError(f"timm:{name}: expected a classifier, got a network without a head")
    return network


def _shape(config: Any, weights: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the numbers of classes and channels, as far as they follow from the weights."""
    sources = (
        ("num_classes", getattr(config, "classifier", None), 0),
        ("in_chans", getattr(config, "first_conv", None), 1),
    )
    found = {}
    for option, layers, axis in sources:
        layer = layers[0] if isinstance(layers, tuple | list) else layers
        count = rows_of(weights, layer, axis) if layer else None
        if count is not None:
            found[option] = count
    return found
