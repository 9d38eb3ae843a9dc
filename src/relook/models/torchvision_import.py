"""Import torchvision where its compiled part does not fit the installed torch.

A torchvision that was built for CUDA cannot load its library with a torch for the CPU; then
importing it fails only because two operators, of no use here, were never declared. They are
declared (not implemented) once an import has failed for them: elsewhere nothing changes.
"""

from __future__ import annotations

import importlib
import re

import torch

_SCHEMAS = {
    name: f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for name in ("nms", "qnms")
}
_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
_declared: list[torch.library.Library] = []  # a library that is collected takes its schemas along


def import_torchvision() -> None:
    """Import torchvision, with the operators declared that it misses; ImportError if absent."""
    for _ in range(len(_SCHEMAS) + 1):
        try:
            importlib.import_module("torchvision")
            return
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] not in _SCHEMAS:
                raise ImportError(f"torchvision does not fit torch: {error}") from error
            library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            library.define(_SCHEMAS[missing[1]])  # type: ignore[no-untyped-call]
            _declared.append(library)
    raise ImportError("torchvision does not fit torch: install versions that belong together")
