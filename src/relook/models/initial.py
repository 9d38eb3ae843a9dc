"""First weights of a network from a seed: no global generator is asked, and none is moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def drawn_network(build: Callable[[], Network], seed: int) -> Network:
    """Build a network with weights from the seed alone (He et al., fan-in), biases 0."""
    # PyTorch's layers draw their weights from the global generator; on "meta" they cannot.
    with torch.device("meta"):
        network = build()
    network.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
    return network
