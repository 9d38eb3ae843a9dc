"""Every public verb takes every kind of model and every kind of images."""

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tests.unit.models.model_files import export_onnx
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relook
from relook.data import load_data
from relook.data.hf_data import import_datasets
from relook.models import as_predictor
from relook.models.hf_models import import_transformers
from relook.models.small import new_small, save_small
from relook.models.timm_models import import_timm

DIGITS = load_data("digits").subset(np.arange(80))
OTHERS = load_data("digits").subset(np.arange(80, 140))
LOGITS = {"outputs": "logits"}
QUICK: Any = {"recipe": "small", "pool_size": 4, "length": 2, "progress": False}

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:the model takes"),
    pytest.mark.filterwarnings("ignore:.*the images:"),
]


@cache
def network() -> nn.Module:
    return new_small(width=2, seed=1)


def to_numpy(images: Tensor) -> Any:
    with torch.inference_mode():
        return network()(images.float() / 255).numpy()


def onnx_file(directory: Path) -> Path:
    export_onnx(network(), directory / "net.onnx", (2, 1, 32, 32))
    return directory / "net.onnx"


def session(directory: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(onnx_file(directory), providers=["CPUExecutionProvider"])


def small_spec(directory: Path) -> str:
    save_small(new_small(width=2, seed=1), directory / "net.safetensors")
    return f"small@{directory / 'net.safetensors'}"


def hf_network(_: Path) -> nn.Module:
    pytest.importorskip("transformers")
    transformers = import_transformers()
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        image_size=32,
        patch_size=16,
        num_channels=1,
        num_labels=10,
    )
    module: nn.Module = transformers.ViTForImageClassification(config)
    return module


def timm_network(_: Path) -> nn.Module:
    module: nn.Module = import_timm().create_model("test_resnet", num_classes=10, in_chans=1)
    return module


MODELS: dict[str, tuple[Callable[[Path], Any], dict[str, Any]]] = {
    "module": (lambda _: new_small(width=2, seed=1), {"mean": 0.1, "std": 0.5}),
    "timm": (timm_network, {}),
    "Hugging Face": (hf_network, {}),
    "session": (session, LOGITS),
    "path": (onnx_file, LOGITS),
    "spec": (small_spec, {}),
    "function": (lambda _: lambda images: network()(images.float() / 255), LOGITS),
    "NumPy function": (lambda _: to_numpy, LOGITS),
    "several": (lambda _: [new_small(width=2, seed=1), new_small(width=2, seed=2)], {}),
}


class Pairs:
    """A data set as torchvision's are."""

    classes = tuple(map(str, range(10)))

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return Image.fromarray(self.images.plain[index, 0].numpy()), int(self.images.labels[index])


def folder(directory: Path, images: relook.Dataset) -> Path:
    place = directory / f"photos{len(images)}"
    for i, (image, label) in enumerate(Pairs(images)[j] for j in range(len(images))):
        (place / str(label)).mkdir(parents=True, exist_ok=True)
        image.save(place / str(label) / f"{i}.png")
    return place


def hf_table(images: relook.Dataset) -> Any:
    pytest.importorskip("datasets")
    datasets = import_datasets()
    pairs = [Pairs(images)[i] for i in range(len(images))]
    columns = {"image": [one for one, _ in pairs], "label": [label for _, label in pairs]}
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(10))
    return datasets.Dataset.from_dict(columns, features=features)


def tensors(images: relook.Dataset) -> TensorDataset:
    return TensorDataset(images.plain.float() / 255, torch.from_numpy(images.labels))


def npz(directory: Path, images: relook.Dataset) -> str:
    file = directory / f"images{len(images)}.npz"
    np.savez(file, images=images.plain.numpy(), labels=images.labels)
    return f"npz:{file}"


IMAGES: dict[str, Callable[[Path, relook.Dataset], tuple[Any, ...]]] = {
    "tensor": lambda _, d: (d.plain, torch.from_numpy(d.labels)),
    "NumPy": lambda _, d: (d.plain.numpy(), d.labels),
    "channels last": lambda _, d: (d.plain.numpy().transpose(0, 2, 3, 1), d.labels.tolist()),
    "floats": lambda _, d: (d.plain.numpy() / 255, d.labels),
    "PIL": lambda _, d: ([Pairs(d)[i][0] for i in range(len(d))], d.labels),
    "DataLoader": lambda _, d: (DataLoader(tensors(d), batch_size=32),),
    "torch data set": lambda _, d: (tensors(d),),
    "torchvision-like": lambda _, d: (Pairs(d),),
    "Hugging Face": lambda _, d: (hf_table(d),),
    "spec": lambda p, d: (npz(p, d),),
    "directory": lambda p, d: (folder(p, d),),
    "Dataset": lambda _, d: (d,),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="(timm|transformers|datasets|torch).*")
        yield


def go_through(model: Any, images: Any, others: Any, how: Any, file: Path) -> None:
    """Search, then do everything that can be done with model, images and policy."""
    search: Any = relook.search
    compare: Any = relook.compare
    found = search(model, *images, **QUICK, **how)
    assert len(found.policy) == 2
    assert len(found.search_indices) + len(found.held_out_indices) == 80
    few: Any = {"budgets": (2,), "methods": ("cf",), "measure_cost": False, "progress": False}
    assert found.compare(**few).images == len(found.held_out_indices)
    fitted = found.calibrate(*others, progress=False)
    assert fitted.policy.temperatures != found.policy.temperatures
    own = relook.calibrate(model, *others, policy=found.policy, progress=False, **how)
    assert own == fitted.policy
    compared = compare(model, *others, policy=found.policy, **few, **how)
    assert compared.images == 60
    tta = relook.TTA(model, found.policy, **how)
    expected = tta.predict_proba(OTHERS.plain)
    np.testing.assert_allclose(
        found.tta(method="policy").predict_proba(OTHERS.plain), expected, atol=1e-6
    )
    if file.suffix == ".onnx":
        done = found.export(file, method="policy", images=others[0])
        assert relook.export(
            model, found.policy, file, images=others[0], size=32, channels=1, **how
        )
        assert done.views == found.policy.views


@pytest.mark.parametrize("kind", MODELS)
def test_every_kind_of_model(kind: str, tmp_path: Path) -> None:
    make, how = MODELS[kind]
    exported = kind not in ("function", "NumPy function", "session")
    file = tmp_path / ("out.onnx" if exported else "none")
    go_through(
        make(tmp_path), (DIGITS.plain, DIGITS.labels), (OTHERS.plain, OTHERS.labels), how, file
    )


@pytest.mark.parametrize("kind", IMAGES)
def test_every_kind_of_images(kind: str, tmp_path: Path) -> None:
    make = IMAGES[kind]
    file = tmp_path / "out.onnx"
    go_through(network(), make(tmp_path, DIGITS), make(tmp_path, OTHERS), {}, file)


@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("model", MODELS)
def test_every_pair_is_understood(model: str, images: str, tmp_path: Path) -> None:
    """Each kind of images goes into each kind of model: the conversions meet nowhere else."""
    make, how = MODELS[model]
    few = DIGITS.subset(np.arange(12))
    dataset = relook.data.as_dataset(*IMAGES[images](tmp_path, few))
    assert as_predictor(make(tmp_path), **how)(dataset.plain).shape == (12, 10)
    assert sorted(dataset.labels.tolist()) == sorted(few.labels.tolist())
