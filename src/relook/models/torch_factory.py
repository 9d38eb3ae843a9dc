"""`torch:package.module:factory@checkpoint`: networks built by the user's own code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from torch import nn

from relook.errors import RelookError, unknown_name
from relook.foundation.wording import first_line
from relook.io.fingerprint import fingerprint
from relook.models.base import Predictor
from relook.models.predictors import ModelOptions
from relook.models.weights import load_checkpoint

FORM = "torch:package.module:factory[@checkpoint]"


def load_torch(rest: str, options: ModelOptions) -> Predictor:
    """Build the network that `package.module:factory[@checkpoint]` names, and load its weights."""
    options.refuse("torch:", "pretrained")
    code, _, checkpoint = rest.partition("@")
    module_name, _, factory_name = code.partition(":")
    if not module_name or not factory_name or ("@" in rest and not checkpoint):
        raise RelookError(f"expected a model as {FORM}, got 'torch:{rest}'")
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
    plain = options.predictor(network)
    # The weights identify neither the code that uses them nor its further settings.
    complete = fingerprint(plain.fingerprint, code, _configuration(network))
    predictor = options.predictor(network, fingerprint=complete)
    predictor.is_bare = True
    return predictor


def _configuration(network: nn.Module) -> list[object]:
    """Return the class of each module, and its attributes that are plain values."""
    found: list[object] = []
    for name, module in network.named_modules():
        own = {n: repr(v) for n, v in vars(module).items() if n != "training" and _is_plain(v)}
        found.append([name, type(module).__qualname__, own])
    return found


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | complex | str | bytes)


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
    except (Exception, SystemExit) as error:  # a script without a main guard may exit
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{name}.".startswith(f"{absent}."):
            raise RelookError(
                f"no module named {absent!r} in {Path.cwd()} or the Python environment: "
                "run from the directory that holds it, or install it"
            ) from None
        raise RelookError(
            f"importing {name} failed: {type(error).__name__}: {first_line(error)}"
        ) from error


def _factory(module: ModuleType, module_name: str, name: str) -> Callable[[], object]:
    factory = getattr(module, name, None)
    if not callable(factory):
        public = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise unknown_name(f"factory in {module_name}", name, public)
    return cast("Callable[[], object]", factory)
