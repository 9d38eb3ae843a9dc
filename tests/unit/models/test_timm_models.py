from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.support import refused
from torch import Tensor

from relook.errors import MissingExtraError, RelookError
from relook.models import InputSpec, load_model
from relook.models.base import input_of
from relook.models.timm_models import import_timm

NAME = "test_resnet"


@pytest.fixture
def timm() -> Any:
    try:
        return import_timm()
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def checkpoint(timm: Any, tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    save_file(timm.create_model(NAME, num_classes=7).state_dict(), path)
    return path


def test_a_network_runs_with_timms_own_settings(
    timm: Any, checkpoint: Path, images: Tensor
) -> None:
    predictor = load_model(f"timm:{NAME}@{checkpoint}")
    network = timm.create_model(NAME, num_classes=7, checkpoint_path=str(checkpoint)).eval()
    settings = timm.data.resolve_model_data_config(network)
    mean, std = (torch.tensor(settings[k]).reshape(1, 3, 1, 1) for k in ("mean", "std"))
    want = network((images.float() / 255 - mean) / std).log_softmax(dim=1)
    torch.testing.assert_close(predictor(images), want, atol=1e-5, rtol=1e-4)
    assert predictor.classes == 7
    assert input_of(predictor) == InputSpec(
        settings["input_size"][1:], settings["crop_pct"], settings["interpolation"], 3
    )


def test_what_is_said_goes_before_timms_settings(checkpoint: Path, images: Tensor) -> None:
    spec = f"timm:{NAME}@{checkpoint}"
    own = load_model(spec)
    said = load_model(spec, mean=0.5, std=0.25, size=96, crop=0.5)
    wanted = input_of(said)
    assert wanted is not None
    assert (wanted.size, wanted.crop) == ((96, 96), 0.5)
    assert not torch.equal(said(images), own(images))
    assert said.fingerprint != own.fingerprint


def test_grey_images_come_with_the_checkpoint(timm: Any, tmp_path: Path) -> None:
    torch.save(timm.create_model(NAME, in_chans=1).state_dict(), tmp_path / "grey.pt")
    spec, images = f"timm:{NAME}@{tmp_path / 'grey.pt'}", torch.zeros(2, 1, 64, 64).byte()
    predictor = load_model(spec, mean=0.5, std=0.5)
    assert predictor(images).shape == (2, 1000)
    wanted = input_of(predictor)
    assert wanted is not None
    assert wanted.channels == 1
    refused("change mean", load_model(spec), images)  # timm's has one value a colour


def test_two_names_of_one_class_and_shape_have_two_fingerprints(timm: Any, tmp_path: Path) -> None:
    """The tf_ networks pad otherwise; their class and the names of their weights are the same."""
    weights = timm.create_model("efficientnet_b0", num_classes=3).state_dict()
    save_file(weights, tmp_path / "w.safetensors")
    one, other = (
        load_model(f"timm:{name}@{tmp_path / 'w.safetensors'}", mean=0.5, std=0.5)
        for name in ("efficientnet_b0", "tf_efficientnet_b0")
    )
    assert one.fingerprint != other.fingerprint


def test_the_global_generator_is_left_alone(checkpoint: Path) -> None:
    before = torch.get_rng_state()
    load_model(f"timm:{NAME}@{checkpoint}")
    assert torch.equal(torch.get_rng_state(), before)


def test_the_papers_networks_are_timm_names(timm: Any) -> None:
    for name in ("resnet50", "efficientnet_b2", "tf_efficientnet_b5", "tf_efficientnet_l2_ns"):
        assert timm.is_model(name)


@pytest.mark.parametrize(
    ("spec", "pretrained", "message"),
    [
        (f"timm:{NAME}", False, "expected weights for timm:test_resnet: .* got neither"),
        (f"timm:{NAME}@w.pt", True, "got both"),
        (f"timm:{NAME}@", False, "expected a model as timm:NAME"),
        ("timm:resnet5O@w.pt", False, "unknown timm network 'resnet5O': did you mean 'resnet50'"),
        ("timm:resnt50", False, "unknown timm network 'resnt50': did you mean 'resnet50'"),
        ("timm:zzzzzz@w.pt", False, "unknown timm network 'zzzzzz': timm.list_models"),
        (f"timm:{NAME}@absent.pt", False, "no such checkpoint: absent.pt"),
    ],
)
def test_a_spec_that_leads_nowhere_gets_one_line(
    timm: Any, spec: str, pretrained: bool, message: str
) -> None:
    refused(message, load_model, spec, pretrained=pretrained)


def test_weights_of_another_network_are_listed(timm: Any, tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(7, 3), "odd": torch.zeros(1)}, tmp_path / "w.pt")
    with pytest.raises(RelookError, match=r"missing.*unexpected \(odd\).*another shape") as caught:
        load_model(f"timm:{NAME}@{tmp_path / 'w.pt'}")
    assert "\n" not in str(caught.value)


def test_a_failed_download_gets_one_line(timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: object, **options: object) -> None:
        assert options["pretrained"] is True
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(RelookError, match=r"fetching its weights failed: .*no route") as caught:
        load_model("timm:resnet50", pretrained=True)
    assert "\n" not in str(caught.value)
