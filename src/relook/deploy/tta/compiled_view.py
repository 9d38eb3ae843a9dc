"""The fast views of the CPU as one operator of torch: torch.compile calls it and goes on.

Compiling the views' own operations takes minutes and gains nothing over the kernels that are
compiled already; torch.export, whose graphs run without relook, gets the operations.
"""

from __future__ import annotations

import json
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from relook.policy import SubPolicy
from relook.policy.file import subpolicy_from_json, subpolicy_to_json
from relook.policy.views import apply_subpolicy


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
