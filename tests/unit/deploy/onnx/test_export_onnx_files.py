"""ONNX files as the network inside an export."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.deploy.tta_cases import MEAN, STD, fixed_policy, network, some_images
from tests.unit.models.model_files import export_onnx, import_onnx
from torch import Tensor, nn

import relook
from relook.deploy.export import export
from relook.models import load_model
from relook.models.onnx_runtime import is_installed, open_session
from relook.models.small import new_small

pytestmark = pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed")


class ChannelsLast(nn.Module):
    """A network of images `[n, h, w, c]` that ends in a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.inner(images.permute(0, 3, 1, 2).float())
        return outputs.softmax(-1)


def same_as_tta(spec: str, path: Path, tolerance: float = 1e-5, **options: Any) -> None:
    predictor, policy, images = load_model(spec, **options), fixed_policy(), some_images()
    done = export(predictor, policy, path, images=images, tolerance=tolerance)
    session = open_session(path.read_bytes())
    found = session.run(None, {"images": images.numpy()})[0]
    assert np.allclose(found, relook.TTA(predictor, policy)(images), atol=tolerance)
    assert done.check.max_difference <= tolerance


def test_a_float_network_is_normalised_inside(tmp_path: Path) -> None:
    export_onnx(network(), tmp_path / "net.onnx", (2, 3, 32, 32))
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    same_as_tta(spec, tmp_path / "m.onnx", outputs="logits", mean=MEAN, std=STD)


def test_channels_last_and_a_softmax_are_understood(tmp_path: Path) -> None:
    export_onnx(ChannelsLast(), tmp_path / "net.onnx", (2, 32, 32, 3))
    same_as_tta(f"onnx:{tmp_path / 'net.onnx'}", tmp_path / "m.onnx", mean=0.5)


def test_half_precision_is_understood(tmp_path: Path) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, images: Tensor) -> Tensor:
            outputs: Tensor = self.inner(images.float())
            return outputs.half()

    export_onnx(Half(), tmp_path / "net.onnx", (2, 3, 32, 32), dtype=torch.float16)
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    same_as_tta(spec, tmp_path / "m.onnx", 1e-3, outputs="logits", std=0.5)


@pytest.mark.parametrize("opset", [13, 16, 20])
def test_older_and_newer_operators_fit(opset: int, tmp_path: Path) -> None:
    export_onnx(network(), tmp_path / "net.onnx", (2, 3, 32, 32), opset=opset)
    same_as_tta(f"onnx:{tmp_path / 'net.onnx'}", tmp_path / "m.onnx", outputs="logits")
    found = import_onnx().load(tmp_path / "m.onnx").opset_import[0].version
    assert found == max(17, opset)


def test_weights_beside_the_file_are_taken_in(tmp_path: Path) -> None:
    onnx = import_onnx()
    export_onnx(network(), tmp_path / "net.onnx", (2, 3, 32, 32))
    onnx.save(
        onnx.load(tmp_path / "net.onnx"),
        tmp_path / "net.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    spec = f"onnx:{tmp_path / 'net.onnx'}"
    predictor = load_model(spec, outputs="logits")
    images = some_images()
    export(predictor, fixed_policy(), tmp_path / "m.onnx", images=images)
    (tmp_path / "weights.bin").unlink()
    session = open_session((tmp_path / "m.onnx").read_bytes())
    assert session.run(None, {"images": images.numpy()})[0].shape == (10, 7)


def test_a_fixed_batch_is_refused(tmp_path: Path) -> None:
    export_onnx(network(), tmp_path / "net.onnx", (2, 3, 32, 32), free_batch=False)
    predictor = load_model(f"onnx:{tmp_path / 'net.onnx'}", outputs="logits")
    with pytest.raises(relook.RelookError, match=r"batches of 2: export it with a free batch"):
        export(predictor, fixed_policy(), tmp_path / "m.onnx", images=some_images())


def test_grey_images_work(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (4, 1, 28, 28), dtype=torch.uint8)
    model = new_small(1, 5, width=8, seed=3)
    export(model, fixed_policy(), tmp_path / "m.onnx", images=images)
    found = open_session((tmp_path / "m.onnx").read_bytes()).run(None, {"images": images.numpy()})
    wanted = relook.TTA(model, fixed_policy())(images)
    assert np.allclose(found[0], wanted, atol=1e-5)
