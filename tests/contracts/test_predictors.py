"""What every model source promises; a new row of MODEL_SOURCES needs an example here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tests.unit.models.model_files import export_onnx, save_hf
from torch import Tensor, nn

from relook.errors import MissingExtraError, RelookError
from relook.models import MODEL_SOURCES, Predictor, load_model
from relook.models.cifar_networks import CIFAR_NETWORKS
from relook.models.small import new_small, save_small
from relook.models.timm_models import import_timm


@dataclass(frozen=True)
class Example:
    """A spec that loads in the working directory, and images that the model takes."""

    spec: str
    images: Tensor


def random_images(channels: int) -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (5, channels, 32, 32), dtype=np.uint8))


def torch_example(directory: Path) -> Example:
    (directory / "relook_contract_network.py").write_text(
        "from relook.models.small import SmallNet\n\ndef build():\n    return SmallNet(3, 6, 2)\n"
    )
    torch.save(new_small(3, 6, width=2, seed=5).state_dict(), directory / "weights.pt")
    return Example("torch:relook_contract_network:build@weights.pt", random_images(3))


def small_example(directory: Path) -> Example:
    save_small(new_small(width=2, seed=5), directory / "net.safetensors")
    return Example("small@net.safetensors", random_images(1))


def timm_example(directory: Path) -> Example:
    network = import_timm().create_model("test_resnet", num_classes=6)
    save_file(network.state_dict(), directory / "timm.safetensors")
    return Example("timm:test_resnet@timm.safetensors", random_images(3))


def onnx_example(directory: Path) -> Example:
    module = nn.Sequential(new_small(3, 6, width=2, seed=5), nn.Softmax(dim=1))
    export_onnx(module, directory / "net.onnx", (2, 3, 32, 32))
    return Example("onnx:net.onnx", random_images(3))


def hf_example(directory: Path) -> Example:
    save_hf(directory / "vit")
    return Example("hf:vit", random_images(3))


def cifar_example(directory: Path) -> Example:
    torch.save(CIFAR_NETWORKS["resnet20"].build(6).state_dict(), directory / "resnet20.pt")
    return Example("cifar:resnet20@resnet20.pt", random_images(3))


EXAMPLES: dict[str, Callable[[Path], Example]] = {
    "torch": torch_example,
    "timm": timm_example,
    "onnx": onnx_example,
    "hf": hf_example,
    "cifar": cifar_example,
    "small": small_example,
}


def test_every_model_source_has_an_example() -> None:
    assert set(EXAMPLES) == set(MODEL_SOURCES)


@pytest.fixture(params=list(MODEL_SOURCES))
def example(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Example]:
    monkeypatch.chdir(tmp_path)
    try:
        made = EXAMPLES[request.param](tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))
    yield made
    sys.modules.pop("relook_contract_network", None)


@pytest.fixture
def predictor(example: Example) -> Predictor:
    return load_model(example.spec)


def test_it_returns_log_probabilities(predictor: Predictor, example: Example) -> None:
    log_probs = predictor(example.images)
    assert isinstance(predictor, Predictor)
    assert (log_probs.dtype, log_probs.device.type) == (torch.float32, "cpu")
    assert log_probs.ndim == 2
    assert len(log_probs) == len(example.images)
    assert predictor.classes in (None, log_probs.shape[1])
    assert log_probs.isfinite().all()
    torch.testing.assert_close(log_probs.double().exp().sum(dim=1), torch.ones(5).double())


def test_it_leaves_its_input_alone(predictor: Predictor, example: Example) -> None:
    before = example.images.clone()
    predictor(example.images)
    assert torch.equal(example.images, before)


def test_it_judges_each_image_by_itself(predictor: Predictor, example: Example) -> None:
    together = predictor(example.images)
    alone = torch.cat([predictor(image[None]) for image in example.images])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)


def test_it_repeats_itself_and_so_does_another_of_the_same_spec(
    predictor: Predictor, example: Example
) -> None:
    log_probs = predictor(example.images)
    again = load_model(example.spec)
    assert torch.equal(predictor(example.images), log_probs)
    assert torch.equal(again(example.images), log_probs)
    assert again.fingerprint == predictor.fingerprint
    assert predictor.fingerprint


def test_its_results_can_be_worked_on(predictor: Predictor, example: Example) -> None:
    log_probs = predictor(example.images)
    log_probs.sub_(1.0)
    assert not log_probs.requires_grad


@pytest.mark.parametrize("bad", ["float", "channels_last", "flat"])
def test_it_refuses_what_are_no_images(predictor: Predictor, example: Example, bad: str) -> None:
    images = {
        "float": example.images.float(),
        "channels_last": example.images.permute(0, 2, 3, 1),
        "flat": example.images.flatten(1),
    }[bad]
    with pytest.raises(RelookError) as caught:
        predictor(images)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("prefix", MODEL_SOURCES)
def test_a_spec_without_its_part_shows_the_form(prefix: str) -> None:
    source = MODEL_SOURCES[prefix]
    assert source.prefix == prefix
    assert source.form.startswith(prefix)
    for spec in (prefix, f"{prefix}:"):
        with pytest.raises(RelookError) as caught:
            load_model(spec)
        assert source.form in str(caught.value)


@pytest.mark.parametrize("prefix", MODEL_SOURCES)
@pytest.mark.parametrize("rest", ["no/such thing", "…", "a:b:c@d", "\n"])
def test_a_spec_that_names_nothing_gets_one_line(prefix: str, rest: str) -> None:
    with pytest.raises(RelookError) as caught:
        load_model(f"{prefix}:{rest}")
    assert "\n" not in str(caught.value)
