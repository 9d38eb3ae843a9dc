"""A training that can be stopped and resumed: its state as one file, its draws by epoch.

All random numbers of an epoch follow from the seed and the epoch. The file is safetensors, written
whole or not at all: weights, the optimiser's tensors and, as metadata, the losses so far. A resumed
training ends in the same weights, to the byte, on the same machine with the same number of threads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relook.errors import FileFormatError, RunError
from relook.io.fingerprint import JSON
from relook.models.weights import read_tensors, save_tensors
from relook.numerics.randomness import Stream, uniforms

_FORMAT = "relook-training-1"
_WEIGHTS = "weights."
_OF_OPTIMIZER = {
    "momentum.": "momentum_buffer",
    "mean.": "exp_avg",
    "square.": "exp_avg_sq",
    "step.": "step",
}
"""The state of SGD and Adam for each parameter, by its prefix in the file."""

_ORDER_SLOT = 2**31  # after the slots of the augmentation
_LAYER_SLOT = _ORDER_SLOT + 1


def epoch_order(images: int, seed: int, epoch: int) -> Tensor:
    """Return all indices in the epoch's random order."""
    lots = uniforms(
        seed, image=np.arange(images), view=epoch, slot=_ORDER_SLOT, stream=Stream.TRAIN
    )
    return torch.from_numpy(np.argsort(lots, kind="stable"))


@contextmanager
def seeded_layers(network: nn.Module, seed: int, epoch: int) -> Iterator[None]:
    """Seed dropout by the seed and the epoch; the global generators are restored at the end."""
    device = next(network.parameters()).device
    lot = uniforms(seed, view=epoch, slot=_LAYER_SLOT, stream=Stream.TRAIN)
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(int(lot * 2**53))
        yield


def save_state(
    path: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    losses: Sequence[float],
    belongs_to: str,
) -> None:
    """Write the state after an epoch; `belongs_to` stands for data and settings."""
    tensors = {_WEIGHTS + name: tensor for name, tensor in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        own = optimizer.state.get(parameter, {})
        kept = ((prefix + name, own.get(key)) for prefix, key in _OF_OPTIMIZER.items())
        tensors |= {key: tensor for key, tensor in kept if tensor is not None}
    record: dict[str, JSON] = {"belongs_to": belongs_to, "losses": list(losses)}
    save_tensors(path, tensors, **{_FORMAT: record})


def load_state(
    path: Path, network: nn.Module, optimizer: torch.optim.Optimizer, belongs_to: str
) -> tuple[float, ...]:
    """Restore network and optimiser from a saved state, if there is one; return its losses."""
    if not path.exists():
        return ()
    try:
        tensors, metadata = read_tensors(path)
    except FileFormatError as error:
        raise _damaged(path, str(error).removeprefix(f"{path}: ")) from None
    losses = _losses(path, metadata, belongs_to)
    weights = _with_prefix(tensors, _WEIGHTS)
    _check_shapes(path, weights, network.state_dict())
    network.load_state_dict(weights)
    parameters = dict(network.named_parameters())
    for prefix, key in _OF_OPTIMIZER.items():
        found = _with_prefix(tensors, prefix)
        known = {name: p for name, p in parameters.items() if name in found}
        one = torch.zeros(())  # a count of steps, which stays on the CPU
        _check_shapes(path, found, dict.fromkeys(known, one) if key == "step" else known)
        for name, tensor in found.items():
            place = "cpu" if key == "step" else parameters[name].device
            optimizer.state[parameters[name]][key] = tensor.to(place)
    return losses


def _losses(path: Path, metadata: Mapping[str, str], belongs_to: str) -> tuple[float, ...]:
    try:
        record: Any = json.loads(metadata[_FORMAT])
        losses = tuple(float(loss) for loss in record["losses"])
        own = record["belongs_to"]
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise _damaged(path, f"its metadata has no {_FORMAT!r}") from None
    if own != belongs_to:
        raise RunError(
            f"{path} belongs to a training with other data or settings: use another directory, or "
            "delete that file"
        )
    if not losses or not all(math.isfinite(loss) for loss in losses):
        raise _damaged(path, "expected the losses of the epochs done")
    return losses


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _check_shapes(path: Path, found: Mapping[str, Tensor], known: Mapping[str, Tensor]) -> None:
    shapes = {name: (tensor.dtype, tensor.shape) for name, tensor in found.items()}
    if shapes != {name: (tensor.dtype, tensor.shape) for name, tensor in known.items()}:
        raise _damaged(path, "its tensors are not those of the network")


def _damaged(path: Path, why: str) -> FileFormatError:
    return FileFormatError(
        f"{path}: expected the state of a training ({why}): delete that file to train from the "
        "start"
    )
