"""An example for every model source."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tests.unit.models.model_files import export_onnx, save_hf
from torch import Tensor, nn

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

SEARCHED = sorted(set(EXAMPLES) - {"small"})
"""Sources that a search is run with, each from its file; other tests search with `small@`."""
