import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from tests.support import refused
from tests.unit.models.model_files import save_hf
from torch import Tensor

from relook.errors import MissingExtraError
from relook.models import InputSpec, TorchPredictor, load_model
from relook.models.base import input_of
from relook.models.hf_models import import_transformers


@pytest.fixture
def transformers() -> Any:
    try:
        return import_transformers()
    except MissingExtraError as error:
        pytest.skip(str(error))


@pytest.fixture
def directory(transformers: Any, tmp_path: Path) -> Path:
    save_hf(tmp_path / "vit")
    return tmp_path / "vit"


def rewrite(directory: Path, **settings: object) -> None:
    """Change settings of the saved image processor."""
    file = directory / "preprocessor_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))


def by_transformers(transformers: Any, directory: Path, images: Tensor) -> Tensor:
    """The network's log-probabilities as transformers' own processor and network give them."""
    processor = transformers.AutoImageProcessor.from_pretrained(directory)
    network = transformers.AutoModelForImageClassification.from_pretrained(directory).eval()
    pictures = [Image.fromarray(np.asarray(image.permute(1, 2, 0))) for image in images]
    with torch.no_grad():
        logits = network(**processor(pictures, return_tensors="pt")).logits
    return torch.as_tensor(logits).log_softmax(dim=1)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_normalize": False},
        {"do_rescale": False, "image_mean": [127.0] * 3, "image_std": [60.0] * 3},
        {"rescale_factor": 1 / 127.5},
    ],
)
def test_a_saved_network_agrees_with_transformers(
    transformers: Any, directory: Path, images: Tensor, settings: dict[str, object]
) -> None:
    rewrite(directory, **settings)
    predictor = load_model(f"hf:{directory}")
    want = by_transformers(transformers, directory, images)
    torch.testing.assert_close(predictor(images), want, atol=1e-4, rtol=0)
    assert predictor.classes == 6
    assert input_of(predictor) == InputSpec((32, 32), 1.0, "bilinear", 3)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        (
            {
                "size": {"shortest_edge": 40},
                "crop_size": {"height": 32, "width": 32},
                "do_center_crop": True,
                "resample": 3,
                "image_processor_type": "BitImageProcessor",
            },
            InputSpec((32, 32), 0.8, "bicubic", 3),
        ),
        (
            {
                "size": {"shortest_edge": 32},
                "crop_pct": 0.9,
                "image_processor_type": "ConvNextImageProcessor",
            },
            InputSpec((32, 32), 0.9, "bilinear", 3),
        ),
    ],
)
def test_the_processors_crop_is_the_inputs(
    directory: Path, settings: dict[str, object], want: InputSpec
) -> None:
    rewrite(directory, **settings)
    assert input_of(load_model(f"hf:{directory}")) == want


def test_what_is_said_goes_before_the_processors_settings(directory: Path) -> None:
    own, said = load_model(f"hf:{directory}"), load_model(f"hf:{directory}", mean=0.1, std=0.7)
    assert isinstance(said, TorchPredictor)
    assert said.normalisation == (0.1, 0.7)
    assert said.fingerprint != own.fingerprint


def test_a_network_without_a_trained_head_is_refused(transformers: Any, tmp_path: Path) -> None:
    save_hf(tmp_path / "bare", head=False)
    refused(r"weights of an image classifier.*classifier", load_model, f"hf:{tmp_path / 'bare'}")


def test_nothing_global_is_left_changed(transformers: Any, directory: Path) -> None:
    before = torch.get_rng_state()
    level = transformers.utils.logging.get_verbosity()
    load_model(f"hf:{directory}")
    assert torch.equal(torch.get_rng_state(), before)
    assert transformers.utils.logging.get_verbosity() == level
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_a_directory_without_a_network_gets_one_line(transformers: Any, tmp_path: Path) -> None:
    refused("loading failed", load_model, f"hf:{tmp_path}")
    refused("expected no outputs with hf:", load_model, f"hf:{tmp_path}", outputs="probabilities")


CODE = """
from pathlib import Path
Path(__file__).with_name("executed").touch()
from transformers import {base} as Base
class Own(Base):
    pass
"""


def test_a_kernel_that_a_directory_names_is_not_fetched(transformers: Any, directory: Path) -> None:
    file = directory / "config.json"
    named = {**json.loads(file.read_text()), "attn_implementation": "someone/kernel"}
    file.write_text(json.dumps(named))
    refused("got the kernel 'someone/kernel'", load_model, f"hf:{directory}")


@pytest.mark.parametrize("part", ["configuration", "processor"])
def test_code_of_a_directory_is_not_run_even_if_standard_input_agrees(
    directory: Path, tmp_path: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, key, base, kind = {
        "configuration": ("config.json", "AutoConfig", "ViTConfig", "model_type"),
        "processor": (
            "preprocessor_config.json",
            "AutoImageProcessor",
            "ViTImageProcessor",
            "image_processor_type",
        ),
    }[part]
    (directory / "own.py").write_text(
        CODE.format(base=base).replace("__file__", repr(str(tmp_path / "own.py")))
    )
    config = json.loads((directory / file).read_text())
    own = {"auto_map": {key: "own.Own"}, kind: "own"}
    (directory / file).write_text(json.dumps({**config, **own}))
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n" * 5))
    refused(r"loading failed|expected", load_model, f"hf:{directory}")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("sharded", [False, True])
def test_packed_weights_are_refused_before_they_are_unpacked(
    transformers: Any, directory: Path, sharded: bool
) -> None:
    (directory / "model.safetensors").unlink()
    name = "part.bin" if sharded else "pytorch_model.bin"
    if sharded:
        index = {"metadata": {}, "weight_map": {"classifier.bias": name}}
        (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    torch.save({"classifier.bias": torch.zeros(6)}, directory / "plain.bin")
    with (
        zipfile.ZipFile(directory / "plain.bin") as plain,
        zipfile.ZipFile(directory / name, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.namelist():
            packed.writestr(member, plain.read(member))
    refused("expected a file of torch.save, got a compressed one", load_model, f"hf:{directory}")


def test_weights_of_torch_save_are_read_from_a_directory(
    transformers: Any, directory: Path, images: Tensor
) -> None:
    want = load_model(f"hf:{directory}")(images)
    file = directory / "model.safetensors"
    torch.save(load_file(file), directory / "pytorch_model.bin")
    file.unlink()
    torch.testing.assert_close(load_model(f"hf:{directory}")(images), want)
