"""Models by name: `torch:package.module:factory@checkpoint`, `small@FILE` …, one table."""

from __future__ import annotations

import importlib
import pickle
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from relook.errors import FileFormatError, RelookError, unknown_name
from relook.files import one_line
from relook.models.base import Outputs, Predictor, first_line
from relook.models.small import load_small
from relook.models.torch_module import Channels, TorchPredictor
from relook.registry import by_name

_WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
_NAMES_SHOWN = 3


@dataclass(frozen=True)
class ModelOptions:
    """What a command line can say about a model beside its spec."""

    mean: Channels | None = None
    std: Channels | None = None
    outputs: Outputs = "logits"
    device: str = "cpu"


@dataclass(frozen=True)
class ModelSource:
    """One row: `load` gets what follows the prefix; `form` shows how a spec looks."""

    prefix: str
    form: str
    load: Callable[[str, ModelOptions], Predictor]


def load_model(
    spec: str,
    *,
    mean: Channels | None = None,
    std: Channels | None = None,
    outputs: Outputs = "logits",
    device: str = "cpu",
) -> Predictor:
    """Return the predictor that a spec names; `mean` and `std` are on the scale 0…1."""
    if not spec.isprintable():
        raise RelookError(f"expected a model spec of printable characters, got {spec!r}")
    prefix, *rest = re.split("[:@]", spec, maxsplit=1)
    source = MODEL_SOURCES.get(prefix)
    if source is None:
        raise unknown_name("model source", prefix, MODEL_SOURCES)
    if not any(rest):
        raise RelookError(f"expected a model as {source.form}, got {spec!r}")
    return source.load(rest[0], ModelOptions(mean, std, outputs, device))


def load_checkpoint(network: nn.Module, path: str | Path) -> None:
    """Load weights into a network from safetensors or a torch file; runs no code of the file.

    The usual wrappers (`state_dict`, `model` …) and prefixes (`module.` …) are seen through;
    names or shapes that do not fit the network raise an error that lists them.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise RelookError(f"no such checkpoint: {path}")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    weights = _unwrapped(path, content)
    expected = network.state_dict()
    weights = _unprefixed(weights, expected)
    faults = _faults(weights, expected)
    if faults:
        raise FileFormatError(
            f"{path}: its weights do not fit the network: {faults}; "
            "check that the factory builds the network that was saved"
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
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    return one_line(shown)


def _read_safetensors(path: Path) -> object:
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise FileFormatError(f"{path}: expected a safetensors file: {first_line(error)}") from None


def _read_torch(path: Path) -> object:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # PyTorch's own message advises to run the file's code: the last thing wanted here.
        named = re.search(r"GLOBAL (\S+)", str(error))
        holds = f"holds {named[1]}" if named else "is damaged or holds more than that"
        raise FileFormatError(
            f"{path}: expected a file of plain tensors, but it {holds}: "
            "save the network's state_dict() alone, best as safetensors"
        ) from None
    except Exception as error:  # damaged archives fail in many ways
        raise FileFormatError(
            f"{path}: expected a checkpoint of torch.save: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from None


def _unwrapped(path: Path, content: object) -> dict[str, Tensor]:
    """Return the state dict inside the usual wrappers."""
    while isinstance(content, Mapping):
        inner = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping)]
        if not inner:
            break
        content = inner[0]
    if not isinstance(content, Mapping) or not content:
        raise FileFormatError(
            f"{path}: expected a state dict (names → tensors), got {_described(content)}"
        )
    strange = [
        str(k) for k, v in content.items() if not (isinstance(k, str) and torch.is_tensor(v))
    ]
    if strange:
        raise FileFormatError(
            f"{path}: expected a state dict (names → tensors), alone or under "
            f"{', '.join(_WRAPPERS)}; not tensors: {_some(strange)}"
        )
    return dict(content)


def _described(content: object) -> str:
    return "nothing" if isinstance(content, Mapping) else f"a {type(content).__name__}"


def _unprefixed(weights: dict[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take off prefixes that wrappers put before every name, and the network does not have."""
    for prefix in (*_PREFIXES, *_PREFIXES):  # twice: they come nested, in any order
        ours = any(name.startswith(prefix) for name in expected)
        if not ours and all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


def _load_torch(rest: str, options: ModelOptions) -> Predictor:
    """Load `package.module:factory[@checkpoint]`: the user's own code, and a file's weights."""
    code, _, checkpoint = rest.partition("@")
    module_name, _, factory_name = code.partition(":")
    if not module_name or not factory_name or ("@" in rest and not checkpoint):
        raise RelookError(f"expected a model as {_TORCH_FORM}, got 'torch:{rest}'")
    with _working_directory_importable():
        factory = _factory(_import(module_name), module_name, factory_name)
        try:
            network = factory()
        except (Exception, SystemExit) as error:
            raise RelookError(
                f"{code}: the factory raised {type(error).__name__}: {first_line(error)}"
            ) from error
    if not isinstance(network, nn.Module):
        raise RelookError(
            f"{code}: expected the factory to return a torch module, got {type(network).__name__}"
        )
    if checkpoint:
        load_checkpoint(network, checkpoint)
    return TorchPredictor(
        network,
        mean=options.mean,
        std=options.std,
        outputs=options.outputs,
        device=options.device,
    )


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise RelookError(
                f"no module named {error.name!r} in {Path.cwd()} or the Python environment: "
                "run from the directory that holds it, or install it"
            ) from None
        raise _broken(name, error) from error
    except (Exception, SystemExit) as error:  # a script without a main guard may exit
        raise _broken(name, error) from error


def _broken(name: str, error: BaseException) -> RelookError:
    return RelookError(f"importing {name} failed: {type(error).__name__}: {first_line(error)}")


def _factory(module: ModuleType, module_name: str, name: str) -> Callable[[], object]:
    factory = getattr(module, name, None)
    if not callable(factory):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown_name(f"factory in {module_name}", name, public)
    return cast("Callable[[], object]", factory)


def _load_small(rest: str, options: ModelOptions) -> Predictor:
    """Load a network of relook's own; it brings its normalisation."""
    if options.mean is not None or options.std is not None or options.outputs != "logits":
        raise RelookError(
            "expected no mean, std or outputs with small@FILE, which brings its own: leave them out"
        )
    network = load_small(Path(rest).expanduser())
    return TorchPredictor(network, device=options.device, classes=network.classes)


_TORCH_FORM = "torch:package.module:factory[@checkpoint]"
_ROWS = (
    ModelSource("torch", _TORCH_FORM, _load_torch),
    ModelSource("small", "small@FILE.safetensors", _load_small),
)


MODEL_SOURCES = by_name(_ROWS, key="prefix")
"""All model sources by the prefix of their specs."""
