"""What the tutorial starts from: digits/, a folder a class, and a timm network that reads them.

python examples/tutorial_data.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from relook.data import Dataset, load_data
from relook.studies.training import train

import timm  # isort: skip  # after relook, for a torchvision that was built for another torch

NETWORK = "resnet10t"
TRAINING_IMAGES = 300


class Normalised(nn.Module):
    """A timm network that takes grey images in 0…1, as relook's training gives them."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        config = timm.data.resolve_model_data_config(network)
        self.mean = torch.tensor(config["mean"]).view(-1, 1, 1)
        self.std = torch.tensor(config["std"]).view(-1, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [n, class]."""
        return self.network((images.expand(-1, 3, -1, -1) - self.mean) / self.std)


def write_images(digits: Dataset, folder: Path) -> None:
    """Write the images as PNG files, a folder a class."""
    for number, (image, label) in enumerate(zip(digits.plain, digits.labels, strict=True)):
        path = folder / digits.classes[int(label)] / f"{number:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image[0].numpy()).convert("RGB").save(path)


def write_network(digits: Dataset, path: Path, epochs: int) -> None:
    """Train the network with random crops, and write its weights."""
    torch.manual_seed(0)
    network = Normalised(timm.create_model(NETWORK, num_classes=len(digits.classes)))
    trained = train(
        network,
        digits,
        epochs=epochs,
        seed=0,
        recipe="small",
        augment="crop_flip",
        batch=32,
        threads=1,  # more only wait for each other, as the network is small
        progress=lambda done, loss: print(f"epoch {done} of {epochs}: loss {loss:.2f}", flush=True),
    )
    save_file(trained.network.state_dict(), path)


def main(epochs: int = 26) -> None:
    """Write weights.safetensors, and the images that it was not trained on to digits/."""
    digits = load_data("digits")
    write_network(digits.subset(range(TRAINING_IMAGES)), Path("weights.safetensors"), epochs)
    rest = digits.subset(range(TRAINING_IMAGES, len(digits)))
    write_images(rest, Path("digits"))
    print(f"weights.safetensors, and {len(rest):,} images in digits/")


if __name__ == "__main__":
    main()
