import pytest
import torch
from tests.support import refused
from tests.unit.models.model_cases import images, network
from torch import Tensor, nn

from relook.models import onnx_runtime
from relook.models.onnx_runtime import OnnxPredictor, to_onnx
from relook.models.predictors import TorchPredictor

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("mean", [None, 0.4, (0.1, 0.5, 0.9)])
def test_outputs_are_torchs_for_any_number_of_images(mean: float | tuple[float, ...]) -> None:
    predictor = TorchPredictor(network(), mean=mean, std=0.3, classes=4)
    graph = to_onnx(predictor, images(5))
    assert graph.classes == 4
    for count in (1, 2, 9):
        torch.testing.assert_close(
            graph(images(count)), predictor(images(count)), atol=1e-5, rtol=0
        )


def test_grey_images_and_other_outputs() -> None:
    module = nn.Sequential(network(1), nn.Softmax(dim=1))
    predictor = TorchPredictor(module, outputs="probabilities")
    graph = to_onnx(predictor, images(3, 1))
    torch.testing.assert_close(graph(images(4, 1)), predictor(images(4, 1)), atol=1e-5, rtol=0)


def test_the_fingerprint_is_stable_and_another() -> None:
    predictor = TorchPredictor(network())
    first, second = to_onnx(predictor, images(2)), to_onnx(predictor, images(7))
    assert first.fingerprint == second.fingerprint != predictor.fingerprint
    other = to_onnx(TorchPredictor(network(), mean=0.5), images(2))
    assert other.fingerprint != first.fingerprint


def test_a_network_that_cannot_be_exported_is_one_line() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values: Tensor = torch.linalg.eigvals(x[:, 0, :4, :4])
            return values.abs()

    refused("cannot be exported to ONNX", to_onnx, TorchPredictor(Odd()), images(2))


def test_damage_and_wrong_images_are_said() -> None:
    refused("cannot load the graph", OnnxPredictor, b"no graph", outputs="logits", fingerprint="x")
    graph = to_onnx(TorchPredictor(network()), images(2))
    refused(r"failed on images \[2, 1, 8, 9\]", graph, images(2, 1))


def test_without_the_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_runtime, "find_spec", lambda name: None)
    refused(r"pip install 'relook\[onnx\]'", to_onnx, TorchPredictor(network()), images(2))
