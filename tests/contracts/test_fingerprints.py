"""Fingerprints that run directories hold: a change here makes every earlier run unresumable."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from relook.data import Dataset
from relook.models import EnsemblePredictor, TorchPredictor, load_model
from relook.models.accelerate import FastTorchPredictor
from relook.models.cifar_networks import CIFAR_NETWORKS
from relook.models.small import SmallNet, save_small
from relook.policy import Step, SubPolicy
from relook.predictions.passes import View, fill_store

IMAGES = torch.arange(4 * 16 * 16).remainder(251).to(torch.uint8).reshape(4, 1, 16, 16)
TINY = Dataset(IMAGES, np.array([0, 1, 1, 0]), ("a", "b"), "tiny")


def with_known_weights(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for i, weights in enumerate(module.parameters()):
            numbers = torch.arange(weights.numel()).remainder(7)
            weights.copy_(numbers.reshape(weights.shape) / 8 - i / 16)
    return module


@pytest.fixture
def predictor() -> TorchPredictor:
    return TorchPredictor(with_known_weights(SmallNet(1, 3, 2)), mean=0.5, std=(0.25,))


def test_data() -> None:
    assert TINY.fingerprint == "99942c9e218143c7c076d6851e013c4b"
    grouped = replace(TINY, groups=np.array([1, 1, 2, 2]))
    assert grouped.fingerprint == "c91a3d85f790278385d62d78a832dfb3"
    assert TINY.identities[0] == 101809926932730
    assert TINY.source_fingerprint == "265845913946600ab2829ba2f6d3bc55"


def test_predictors(predictor: TorchPredictor) -> None:
    assert predictor.fingerprint == "1f1eca1d55519bf834995d7fbb5d0495"
    fast = FastTorchPredictor(predictor, channels_last=True)
    assert fast.fingerprint == "43a26eadac329c1cbb94380a1204f0c8"
    both = EnsemblePredictor([predictor, TorchPredictor(predictor.module)])
    assert both.fingerprint == "272ad1d322ec3d4ffaa157f51e4d5cff"


def test_models_by_spec(predictor: TorchPredictor, tmp_path: Path) -> None:
    save_small(predictor.module, tmp_path / "small.safetensors")  # type: ignore[arg-type]
    small = load_model(f"small@{tmp_path / 'small.safetensors'}")
    assert small.fingerprint == "551d8dd71f725f8b85124fc4a3c37ae9"
    resnet = with_known_weights(CIFAR_NETWORKS["resnet20"].build(3))
    torch.save(resnet.state_dict(), tmp_path / "resnet20.pt")
    cifar = load_model(f"cifar:resnet20@{tmp_path / 'resnet20.pt'}")
    assert cifar.fingerprint == "d230b532277e3e1113c632451069e933"


def test_the_manifest_of_predictions(predictor: TorchPredictor, tmp_path: Path) -> None:
    views = [View(SubPolicy(), 0), View(SubPolicy((Step("rotate", 9),)), 1)]
    store = fill_store(predictor, IMAGES, views, tmp_path / "store", seed=3)
    manifest = (store.path / "manifest.json").read_text()
    assert '"pool": "24cbbb1f50949c56af78df380c3b8bb3"' in manifest
    assert '"model": "1f1eca1d55519bf834995d7fbb5d0495"' in manifest
    assert '"data": "f961461ba440cc6e6fcaa57b068f2843"' in manifest
    assert '"calls": "views of a block, one after another, in full batches"' in manifest
