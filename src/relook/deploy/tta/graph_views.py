"""Fixed views inside a graph: one operator for torch.compile, plain operations for torch.export.

Compiling the views' own operations takes minutes and gains nothing over the kernels that are
compiled already, so torch.compile calls those; torch.export's graphs run without relook.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from relook.policy import SubPolicy
from relook.policy.file import subpolicy_from_json, subpolicy_to_json
from relook.policy.views import apply_subpolicy, fixed_steps, naming_steps
from relook.transforms.apply import apply_kernels


def traced_view(subpolicy: SubPolicy, images: Tensor) -> Tensor:
    """Return a fixed view of uint8 images `[n, c, h, w]` in operations that a graph can hold."""
    with naming_steps(subpolicy):
        return apply_kernels(images, fixed_steps(subpolicy))


def subpolicy_text(subpolicy: SubPolicy) -> str:
    """Return a fixed sub-policy as the operator takes it."""
    return json.dumps(subpolicy_to_json(subpolicy))


@torch.library.custom_op("relook::fixed_view", mutates_args=())
def fixed_view(images: Tensor, subpolicy: str) -> Tensor:
    """Return one fixed view of uint8 images `[n, c, h, w]`."""
    return apply_subpolicy(_parsed(subpolicy), images, np.zeros(len(images), np.int64), 0, 0)


@fixed_view.register_fake
def _(images: Tensor, subpolicy: str) -> Tensor:
    return torch.empty_like(images, memory_format=torch.contiguous_format)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> SubPolicy:
    return subpolicy_from_json(json.loads(text))
