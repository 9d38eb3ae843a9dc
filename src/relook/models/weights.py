"""Weights: drawn from a seed, written, and read from safetensors and torch files, never as code."""

from __future__ import annotations

import json
import mmap
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from relook.errors import FileFormatError, RelookError
from relook.foundation.wording import first_line
from relook.io.files import one_line, write_bytes_atomic
from relook.io.fingerprint import JSON

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_DEEPEST = 10
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
_NAMES_SHOWN = 3
_LONGEST_NAME = 200
_PICKLES = 4  # of an old file, before its tensors: mark, protocol, machine, names
_ALLOCATOR = b"bytearray"  # bytearray(n) allocates n bytes

Network = TypeVar("Network", bound=nn.Module)


def drawn_network(build: Callable[[], Network], seed: int) -> Network:
    """Build a network with weights drawn from the seed (He et al., fan-in), and biases of 0."""
    network = undrawn_network(build)
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return network


def undrawn_network(build: Callable[[], Network]) -> Network:
    """Build a network with uninitialised weights, without using the global generator."""
    # PyTorch's layers draw their weights from the global generator, except on "meta".
    with torch.device("meta"):
        network = build()
    network.to_empty(device="cpu")
    for buffer in network.buffers():
        buffer.zero_()  # old files lack BatchNorm's counters
    return network


def save_tensors(path: str | Path, tensors: Mapping[str, Tensor], **record: JSON) -> None:
    """Write tensors as safetensors, whole or not at all; at most one record, as JSON metadata.

    Not more than one: safetensors writes several in an order that changes from run to run.
    """
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {name: json.dumps(content) for name, content in record.items()}
    write_bytes_atomic(path, save(held, metadata=metadata or None))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file, and its metadata."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        reason = one_line(first_line(error)[:_LONGEST_NAME])
        raise FileFormatError(f"{path}: expected a safetensors file: {reason}") from None


def load_checkpoint(network: nn.Module, path: str | Path) -> None:
    """Load weights into a network from safetensors or a torch file; runs no code of the file."""
    load_weights(network, read_weights(path), path)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Return the state dict in a safetensors or torch file, without the usual wrappers."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise RelookError(f"no such checkpoint: {path}")
    content = read_tensors(path)[0] if path.suffix == ".safetensors" else _read_torch(path)
    weights = _unwrapped(path, content)
    _check_held(path, weights)
    return weights


def load_weights(network: nn.Module, weights: dict[str, Tensor], path: str | Path) -> None:
    """Load weights that were read from `path`; names or shapes that do not fit are listed.

    Prefixes that wrappers put before every name (`module.` …) are removed.
    """
    expected = network.state_dict()
    weights = _unprefixed(weights, expected)
    faults = _faults(weights, expected)
    if faults:
        raise FileFormatError(
            f"{path}: its weights do not fit the network: {faults}; "
            "check that it is the network that was saved"
        )
    network.load_state_dict(weights, strict=False)


def _faults(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Say which names are missing, unexpected or of another shape; empty if all fit."""
    counters = "num_batches_tracked"  # not saved by old versions, and not used in eval mode
    missing = [n for n in expected if n not in weights and not n.endswith(counters)]
    unexpected = [n for n in weights if n not in expected]
    shapes = [
        f"{n}: expected {list(expected[n].shape)}, got {list(weights[n].shape)}"
        for n in weights
        if n in expected and expected[n].shape != weights[n].shape
    ]
    kinds = ((missing, "missing"), (unexpected, "unexpected"), (shapes, "of another shape"))
    return "; ".join(f"{len(names)} {kind} ({_some(names)})" for names, kind in kinds if names)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(name[:_LONGEST_NAME] for name in names[:_NAMES_SHOWN]) + (
        ", …" if len(names) > _NAMES_SHOWN else ""
    )
    return one_line(shown)


def _read_torch(path: Path) -> object:
    try:
        check_unpacked(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileFormatError:
        raise
    except pickle.UnpicklingError as error:
        # PyTorch's own message advises to run the file's code.
        named = re.search(r"GLOBAL (\S+)", str(error))
        holds = (
            f"holds {one_line(named[1][:_LONGEST_NAME])}"
            if named
            else "is damaged or holds more than that"
        )
        raise FileFormatError(
            f"{path}: expected a file of plain tensors, but it {holds}: "
            "save the network's state_dict() alone, best as safetensors"
        ) from None
    except Exception as error:  # damaged archives fail in many ways
        raise FileFormatError(
            f"{path}: expected a checkpoint of torch.save: "
            f"{type(error).__name__}: {one_line(first_line(error)[:_LONGEST_NAME])}"
        ) from None


def check_unpacked(path: Path) -> None:
    """Refuse files that would grow in memory; those of torch.save are not compressed."""
    size = path.stat().st_size
    if not size:
        raise FileFormatError(f"{path}: expected a file of torch.save, got an empty one")
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(m.compress_type != zipfile.ZIP_STORED for m in members):
                raise FileFormatError(
                    f"{path}: expected a file of torch.save, got a compressed one"
                )
            if sum(m.file_size for m in members) > size:
                raise FileFormatError(f"{path}: declares more content than the file can hold")
            for member in members:
                if member.filename.endswith("/data.pkl"):
                    with archive.open(member) as pickled:
                        _check_names(pickled, path)
    else:
        with path.open("rb") as file:
            for _ in range(_PICKLES):
                _check_names(file, path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(_ALLOCATOR) >= 0:
            raise FileFormatError(f"{path}: expected a file of plain tensors, but it makes others")


def _check_names(pickled: IO[bytes], path: Path) -> None:
    """Refuse names so long that PyTorch would search its own message about them for hours."""
    with suppress(ValueError):  # not a pickle: PyTorch's own error is better
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name == "GLOBAL" and len(str(argument)) > _LONGEST_NAME:
                raise FileFormatError(
                    f"{path}: expected a file of plain tensors, got a strange name"
                )


def _check_held(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not stored in full, as a few bytes could stand for any size."""
    for name, tensor in weights.items():
        plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta
        held = tensor.untyped_storage().nbytes() if plain else 0
        if not plain or tensor.numel() * tensor.element_size() > held:
            raise FileFormatError(
                f"{path}: expected plain tensors, but {one_line(name[:_LONGEST_NAME])} "
                f"{list(tensor.shape)} holds only {held:,} bytes"
            )


def _unwrapped(path: Path, content: object) -> dict[str, Tensor]:
    """Return the state dict inside the usual wrappers."""
    for _ in range(_DEEPEST):  # bounded: a pickle can hold a mapping that contains itself
        inner = content if isinstance(content, Mapping) else {}
        content = next((inner[k] for k in _WRAPPERS if isinstance(inner.get(k), Mapping)), content)
    if not isinstance(content, Mapping) or not content:
        got = "nothing" if isinstance(content, Mapping) else f"a {type(content).__name__}"
        raise FileFormatError(f"{path}: expected a state dict (names → tensors), got {got}")
    strange = [
        name if isinstance(name, str) else f"a {type(name).__name__}"
        for name, value in content.items()
        if not (isinstance(name, str) and torch.is_tensor(value))
    ]
    if strange:
        raise FileFormatError(
            f"{path}: expected a state dict (names → tensors), alone or under "
            f"{', '.join(_WRAPPERS)}; not tensors: {_some(strange)}"
        )
    return dict(content)


def _unprefixed(weights: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Remove prefixes that wrappers put before every name, unless the network has them too."""
    for prefix in (*_PREFIXES, *_PREFIXES):  # twice: they come nested, in any order
        ours = any(name.startswith(prefix) for name in expected)
        if not ours and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


def rows_of(weights: Mapping[str, Tensor], layer: str, axis: int = 0) -> int | None:
    """Return the length of an axis of a layer's weight, whatever prefix its name has."""
    name = f"{layer}.weight"
    for found, tensor in weights.items():
        if (found == name or found.endswith(f".{name}")) and tensor.ndim > axis:
            return int(tensor.shape[axis])
    return None
