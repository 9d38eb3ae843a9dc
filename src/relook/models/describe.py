"""Describes a model in words and as data, so that a wrong normalisation is noticed."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import nn

from relook.io.fingerprint import fingerprint
from relook.models.base import Predictor, input_of
from relook.models.predictors import CallablePredictor, EnsemblePredictor, TorchPredictor


def model_record(predictor: Predictor) -> dict[str, Any]:
    """Return a model's known classes, input, normalisation and outputs as JSON-able data."""
    if isinstance(predictor, EnsemblePredictor):
        return {"members": [model_record(member) for member in predictor.members]}
    wanted = input_of(predictor)
    mean, std = getattr(predictor, "normalisation", None) or (None, None)
    record = {
        "classes": predictor.classes,
        "input": None if wanted is None else asdict(wanted),
        "mean": mean,
        "std": std,
        "outputs": getattr(predictor, "outputs", None),
    }
    return {name: value for name, value in record.items() if value is not None}


def describe_model(predictor: Predictor) -> str:
    """Describe a model in one line, or each member of an ensemble."""
    if isinstance(predictor, EnsemblePredictor):
        members = "; ".join(describe_model(member) for member in predictor.members)
        return f"the mean of {len(predictor.members)} models: {members}"
    record = model_record(predictor)
    parts = []
    if "classes" in record:
        parts.append(f"{record['classes']} classes")
    if "input" in record:
        height, width = record["input"]["size"]
        parts.append(f"images of {height}×{width}")
    if "mean" in record:
        parts.append(f"mean {_numbers(record['mean'])}, std {_numbers(record['std'])}")
    else:
        parts.append("images as they are")
    if "outputs" in record:
        parts.append(record["outputs"])
    return ", ".join(parts)


def network_mark(model: object) -> str | None:
    """Return a fingerprint of a network, however it is wrapped; None if there can be none.

    That of a torch network is made from the signs of its parameters, which no device, normalisation
    or cast changes. Only marks with the same first word can be compared.
    """
    if isinstance(model, EnsemblePredictor):
        marks = [network_mark(member) or "" for member in model.members]
        known = all(mark.startswith("torch ") for mark in marks)
        return f"ensemble {fingerprint(marks)}" if known else None
    module = model.module if isinstance(model, TorchPredictor) else model
    if isinstance(module, nn.Module):
        signs = [torch.signbit(one.detach()).cpu().numpy() for one in module.parameters()]
        return f"torch {fingerprint([np.packbits(one) for one in signs])}" if signs else None
    if isinstance(model, Predictor) and not isinstance(model, CallablePredictor):
        kind = fingerprint(type(model).__qualname__)[:8]
        return f"{kind} {fingerprint(model.fingerprint)}"
    return None


def _numbers(values: float | tuple[float, ...]) -> str:
    return " ".join(f"{v:.4g}" for v in (values if isinstance(values, tuple) else (values,)))
