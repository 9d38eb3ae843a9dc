"""Makes torchvision importable when its compiled part does not fit the installed torch.

A torchvision built for CUDA cannot load its library into a torch built for the CPU. Then `import
torchvision`, and with it `import timm`, fails only because two operators that relook does not need
were never declared. Once relook is imported, an import that fails on them declares them (without
implementing them) and is tried again. Nothing else changes, and torch is not imported for it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_SCHEMAS = {
    name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms")
}
_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
declared: dict[str, Any] = {}
"""The libraries that declare operators, kept alive because their schemas go with them."""


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """Run torchvision's code, again after declaring each operator that it misses."""
        while True:
            try:
                return super().exec_module(module)
            except RuntimeError as error:
                missing = _MISSING.search(str(error))
                if missing is None or missing[1] not in _SCHEMAS.keys() - declared.keys():
                    raise ImportError(f"torchvision does not fit torch: {error}") from error
                _declare(missing[1])


class _Finder:
    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return torchvision's own spec with `_Loader`, None for any other module."""
        found = None if name != "torchvision" else PathFinder.find_spec(name, path, target)
        if found is None or not isinstance(found.loader, SourceFileLoader):
            return None
        found.loader = _Loader(name, found.loader.path)
        return found


def _declare(operator: str) -> None:
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define(_SCHEMAS[operator])  # type: ignore[no-untyped-call]
    declared[operator] = library


def install() -> None:
    """Put `_Finder` first on the import path, once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
