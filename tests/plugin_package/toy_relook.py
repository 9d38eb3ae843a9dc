"""What a package outside relook brings: one of each, found by its entry point."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import relook


def dim(images: Tensor, values: Tensor) -> Tensor:
    """Take the same number of grey levels from each pixel."""
    return (images - values.round()[:, None, None, None]).clamp(min=0).to(torch.uint8)


def mean_right(log_probs: NDArray[Any], labels: NDArray[Any]) -> float:
    """The mean probability of the right class."""
    return float(np.exp(log_probs[np.arange(len(labels)), labels]).mean())


def corners(recipe: relook.Recipe, views: int, *_: object) -> Sequence[relook.SubPolicy]:
    """The two crops at opposite corners."""
    return [
        relook.SubPolicy((relook.Step("crop", 4, draws={"x": place, "y": place}),))
        for place in (0, 1)
    ]


def network(classes: str) -> nn.Module:
    """A linear network with weights that are no one's."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12 * 12, int(classes)))


def pictures(count: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Random pictures of three classes."""
    generator = np.random.default_rng(0)
    labels = np.arange(int(count)) % 3
    images = generator.integers(0, 200, (int(count), 1, 12, 12), dtype=np.uint8)
    return images + 20 * labels[:, None, None, None].astype(np.uint8), labels


def register() -> None:
    """Add them all."""
    relook.register_transform("dim", dim, unit="grey levels", identity_at_zero=True)
    relook.register_objective("mean_right", mean_right)
    relook.register_baseline("corners", corners, about="two opposite corners", budget=2)
    relook.register_model_source("toynet", network, form="toynet:CLASSES")
    relook.register_data_source("toyset", pictures, form="toyset:IMAGES")
