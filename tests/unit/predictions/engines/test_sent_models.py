"""Models as workers get them: sent to another process, they say the same."""

import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor

from relook.models import EnsemblePredictor, Predictor, TorchPredictor, load_model
from relook.models.accelerate import FastTorchPredictor
from relook.models.small import new_small


def check_sent(predictor: Predictor, images: Tensor) -> None:
    sent: Predictor = pickle.loads(pickle.dumps(predictor))  # noqa: S301
    assert sent.fingerprint == predictor.fingerprint
    assert sent.classes == predictor.classes
    assert torch.equal(sent(images), predictor(images))


@pytest.fixture
def grey(images: Tensor) -> Tensor:
    return images[:, :1]


def test_torch_modules_and_ensembles(grey: Tensor) -> None:
    module = TorchPredictor(new_small(seed=1), mean=0.5, std=0.2)
    check_sent(module, grey)
    check_sent(FastTorchPredictor(module, channels_last=True), grey)
    check_sent(EnsemblePredictor([module, TorchPredictor(new_small(seed=2))]), grey)


def test_onnx_graphs_with_their_weights(grey: Tensor, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from relook.models.onnx_runtime import export_network, to_onnx

    module = TorchPredictor(new_small(seed=1), classes=10)
    check_sent(to_onnx(module, grey), grey)
    file = tmp_path / "network.onnx"
    file.write_bytes(export_network(module, grey))
    for mean in (None, 0.0):
        check_sent(load_model(f"onnx:{file}", outputs="logits", mean=mean), grey)
