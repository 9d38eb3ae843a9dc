"""Networks that can be trained from scratch: `small`, `small:WIDTH`, `cifar:vgg16` …"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from torch import nn

from relook.errors import RelookError, unknown_name
from relook.models.cifar_networks import CIFAR_NETWORKS
from relook.models.small import SmallNet, new_small, save_small
from relook.models.weights import drawn_network, save_tensors

FORM = f"small, small:WIDTH, or cifar:NAME with one of {', '.join(CIFAR_NETWORKS)}"

_CIFAR_SIDE = 32
_SMALLEST_SIDE = 16
_SMALL_WEIGHT_DECAY = 5e-4
_RESNET_WEIGHT_DECAY = 1e-4  # He et al. (2016), section 4.2
_PAPER_WEIGHT_DECAYS = {"vgg16": 3e-4, "preresnet110": 3e-4, "wrn28x10": 5e-4}


@dataclass(frozen=True)
class TrainableNetwork:
    """A network before training: `build(channels, classes, seed)` draws its first weights.

    `weight_decay` is the paper's (appendix A) if it has one. `side` and `channels` are those that
    images must have (None: any). `load` is the prefix of the model spec of its files.
    """

    name: str
    build: Callable[[int, int, int], nn.Module]
    save: Callable[[nn.Module, Path], None]
    load: str
    weight_decay: float
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    side: int | None = None
    channels: int | None = None

    def spec(self, path: Path) -> str:
        """Return the model spec of a trained network's file."""
        return f"{self.load}@{path}"

    def check_images(self, shape: tuple[int, ...], where: str) -> None:
        """Raise unless images `[channels, height, width]` suit the network."""
        channels, height, width = shape
        if self.side is not None and (channels, height, width) != (3, self.side, self.side):
            raise RelookError(
                f"{where}: {self.name} takes colour images of {self.side}×{self.side}, got "
                f"{channels} channel(s) of {height}×{width}: give --size {self.side} --channels 3"
            )
        if min(height, width) < _SMALLEST_SIDE:
            raise RelookError(
                f"{where}: expected images of at least {_SMALLEST_SIDE} pixels per side, got "
                f"{height}×{width}: give --size 32"
            )


def get_network(spec: str) -> TrainableNetwork:
    """Return the network that a spec names."""
    kind, _, name = spec.partition(":")
    if kind == "small":
        return _small(spec, name)
    if kind != "cifar":
        raise unknown_name("kind of network", kind, ("small", "cifar"))
    row = CIFAR_NETWORKS.get(name)
    if row is None:
        raise unknown_name("CIFAR network", name, CIFAR_NETWORKS)
    mean, std = row.normalisation
    return TrainableNetwork(
        name,
        lambda _, classes, seed: drawn_network(lambda: row.build(classes), seed),
        lambda network, path: save_tensors(path, network.state_dict()),
        f"cifar:{name}",
        _PAPER_WEIGHT_DECAYS.get(name, _RESNET_WEIGHT_DECAY),
        mean,
        std,
        side=_CIFAR_SIDE,
        channels=3,
    )


def _small(spec: str, width: str) -> TrainableNetwork:
    if ":" in spec and not re.fullmatch("[0-9]{1,4}", width):
        raise RelookError(f"expected a network as {FORM}, got {spec!r}")
    channels_wide = int(width or 16)
    return TrainableNetwork(
        "small" if channels_wide == 16 else f"small{channels_wide}",
        lambda channels, classes, seed: new_small(
            channels, classes, width=channels_wide, seed=seed
        ),
        lambda network, path: save_small(cast(SmallNet, network), path),
        "small",
        _SMALL_WEIGHT_DECAY,
    )
