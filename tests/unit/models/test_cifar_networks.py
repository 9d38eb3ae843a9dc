import os
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor, nn

from relook.models import InputSpec, load_model
from relook.models.base import input_of
from relook.models.cifar_networks import CIFAR_NETWORKS, CifarResNet

# Of the ResNets and WRN-28-10: as their papers state. Of the other two: added up by hand, e.g. for
# PreResNet110 stages of 12 blocks of 17·w² + 12·w weights, w = 16, 32, 64 (the first ones differ).
MILLIONS = {
    "resnet20": 0.27,
    "resnet32": 0.46,
    "resnet44": 0.66,
    "resnet56": 0.85,
    "vgg16": 15.25,
    "preresnet110": 1.147,
    "wrn28x10": 36.5,
}


@pytest.mark.parametrize("name", CIFAR_NETWORKS)
def test_the_networks_have_their_papers_size(name: str) -> None:
    with torch.device("meta"):
        network = CIFAR_NETWORKS[name].build(10)
    counted = sum(parameter.numel() for parameter in network.parameters()) / 1e6
    assert counted == pytest.approx(MILLIONS[name], rel=0.02)
    head = network.get_submodule(CIFAR_NETWORKS[name].head)
    assert isinstance(head, nn.Linear)
    assert head.out_features == 10
    with torch.device("meta"):
        assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_shortcut_takes_every_second_pixel_and_pads_channels() -> None:
    network = CifarResNet(3, 10).eval()
    block = network.layer2[0]
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.zero_()  # what is left is the shortcut
        inputs = torch.rand(2, 16, 8, 8)
        outputs = block(inputs)
    assert torch.equal(outputs[:, 8:24], inputs[:, :, ::2, ::2])
    assert not outputs[:, :8].any()
    assert not outputs[:, 24:].any()


def test_a_checkpoint_in_the_public_form_is_loaded(tmp_path: Path, images: Tensor) -> None:
    network = CIFAR_NETWORKS["resnet20"].build(5).eval()
    weights = {f"module.{name}": tensor for name, tensor in network.state_dict().items()}
    torch.save({"state_dict": weights, "best_prec1": 91.7}, tmp_path / "w.th")
    predictor = load_model(f"cifar:resnet20@{tmp_path / 'w.th'}")
    mean = torch.tensor([0.485, 0.456, 0.406]).reshape(1, 3, 1, 1)
    std = torch.tensor([0.229, 0.224, 0.225]).reshape(1, 3, 1, 1)
    want = network((images.float() / 255 - mean) / std).log_softmax(dim=1)
    torch.testing.assert_close(predictor(images), want)
    assert predictor.classes == 5
    assert input_of(predictor) == InputSpec((32, 32), 1.0, "bicubic", 3)


def test_old_files_without_counters_have_one_fingerprint(tmp_path: Path) -> None:
    weights = CIFAR_NETWORKS["resnet20"].build(5).state_dict()
    old = {name: t for name, t in weights.items() if not name.endswith("num_batches_tracked")}
    torch.save(old, tmp_path / "old.pt")
    torch.save(weights, tmp_path / "new.pt")
    prints = {
        load_model(f"cifar:resnet20@{tmp_path / n}").fingerprint for n in ("old.pt", "new.pt")
    }
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cifar:resnet20", "expected a model as cifar:resnet20|"),
        ("cifar:resnet21@w.pt", "unknown CIFAR network 'resnet21': did you mean 'resnet"),
        ("cifar:resnet32@w.pt", "its weights do not fit the network: .* missing"),
        ("cifar:preresnet110@w.pt", "expected fc.weight, the last layer of preresnet110"),
    ],
)
def test_a_spec_that_does_not_fit_gets_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(CIFAR_NETWORKS["resnet20"].build(5).state_dict(), "w.pt")
    refused(message, load_model, spec)


DATA = os.environ.get("RELOOK_TEST_DATA")
PUBLIC = {
    "resnet20": ("akamaster_resnet20-12fca82f.th", 91.73),
    "resnet32": ("akamaster_resnet32-d509ac18.th", 92.63),
    "resnet44": ("akamaster_resnet44-014dd654.th", 93.10),
    "resnet56": ("akamaster_resnet56-4bfd9763.th", 93.39),
}


@pytest.mark.slow
@pytest.mark.skipif(DATA is None, reason="RELOOK_TEST_DATA does not point to CIFAR-10 and weights")
@pytest.mark.parametrize("name", PUBLIC)
def test_the_public_weights_reach_their_accuracy(name: str) -> None:
    assert DATA is not None
    file, accuracy = PUBLIC[name]
    with np.load(Path(DATA) / "cifar10_test.npz") as arrays:
        images = torch.from_numpy(arrays["images"]).permute(0, 3, 1, 2)
        labels = torch.from_numpy(arrays["labels"])
    predictor = load_model(f"cifar:{name}@{Path(DATA) / 'weights' / file}")
    found = torch.cat([predictor(part).argmax(dim=1) for part in torch.split(images, 250)])
    assert 100 * float((found == labels).double().mean()) == pytest.approx(accuracy, abs=0.011)
