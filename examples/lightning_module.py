"""A Lightning module that trains a network and predicts with a policy.

python examples/lightning_module.py
"""

from __future__ import annotations

from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relook
from relook.data import load_data
from relook.models.small import new_small


class Classifier(lightning.LightningModule):
    """Trains on uint8 images; `predict_step` averages the views of a policy, calibrated."""

    def __init__(self, network: nn.Module, policy: relook.Policy) -> None:
        super().__init__()
        self.network = network
        self.tta = relook.TTA(network, policy)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Return the loss of the plain images."""
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images.float() / 255), labels)

    def predict_step(self, batch: list[Tensor], index: int) -> Tensor:
        """Return probabilities `[n, class]`."""
        probabilities: Tensor = self.tta(batch[0])
        return probabilities

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser of the network; the policy has nothing to learn here."""
        return torch.optim.AdamW(self.network.parameters(), lr=3e-3)


def trainer(epochs: int) -> Any:
    """Return a trainer that runs on the processor and leaves no files."""
    return lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def main(epochs: int = 6) -> float:
    """Train on a part of the digits and return the accuracy on the rest."""
    digits = load_data("digits")
    images, labels = digits.plain, torch.from_numpy(digits.labels)
    policy = relook.Policy(
        relook.sample_pool("small", 60, 0, draws="fixed")[-5:], temperatures=(1.0,) * 5
    )
    module = Classifier(new_small(seed=0), policy)
    searched, rest = TensorDataset(images[:1200], labels[:1200]), images[1200:]
    trainer(epochs).fit(module, DataLoader(searched, batch_size=64, shuffle=False))
    found = trainer(1).predict(module, DataLoader(TensorDataset(rest), batch_size=256))
    right = torch.cat(found).argmax(1) == labels[1200:]
    return float(right.float().mean())


if __name__ == "__main__":
    print(f"accuracy with five views: {main():.3f}")
