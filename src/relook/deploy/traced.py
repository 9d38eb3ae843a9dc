"""Fixed views for torch.export: the table's own kernels, traced with one value for all images."""

from __future__ import annotations

from torch import Tensor

from relook.policy import SubPolicy
from relook.policy.views import fixed_steps, naming_steps
from relook.transforms.apply import apply_kernels


def traced_view(subpolicy: SubPolicy, images: Tensor) -> Tensor:
    """Return a fixed view of uint8 images `[n, c, h, w]` in operations that a graph can hold."""
    with naming_steps(subpolicy):
        return apply_kernels(images, fixed_steps(subpolicy))
