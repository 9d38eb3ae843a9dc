"""Test a Lightning module with and without test-time augmentation, by one callback.

python examples/lightning_callback.py
"""

from __future__ import annotations

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from relook.adapters.lightning import TTACallback
from relook.data import load_data
from relook.models.small import new_small


class Classifier(lightning.LightningModule):
    """A network of images in 0 … 1."""

    def __init__(self) -> None:
        super().__init__()
        self.network = new_small(seed=0)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits `[n, class]`."""
        logits: Tensor = self.network(images)
        return logits

    def validation_step(self, batch: list[Tensor], index: int) -> None:
        """Log the accuracy of plain images."""
        self._log("val_accuracy", batch)

    def test_step(self, batch: list[Tensor], index: int) -> None:
        """Log the accuracy of plain images."""
        self._log("test_accuracy", batch)

    def _log(self, name: str, batch: list[Tensor]) -> None:
        images, labels = batch
        right = self(images.float() / 255).argmax(1) == labels
        self.log(name, right.float().mean(), batch_size=len(labels))


def train(network: nn.Module, images: Tensor, labels: Tensor, steps: int) -> None:
    """Train on everything at once: what matters here comes after it."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=3e-3)
    for _ in range(steps):
        loss = nn.functional.cross_entropy(network(images.float() / 255), labels)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def main(steps: int = 60) -> dict[str, float]:
    """Return the test metrics, plain and averaged over ten crops, which were calibrated."""
    digits = load_data("digits")
    images, labels = digits.plain, torch.from_numpy(digits.labels)
    module = Classifier()
    train(module.network, images[:600], labels[:600], steps)
    callback = TTACallback("10c", network="network", calibrate=True)
    trainer = lightning.Trainer(
        accelerator="cpu",
        logger=False,
        callbacks=[callback],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    parts = [TensorDataset(images[a:b], labels[a:b]) for a, b in ((600, 1000), (1000, 1400))]
    trainer.validate(module, DataLoader(parts[0], batch_size=128), verbose=False)
    (metrics,) = trainer.test(module, DataLoader(parts[1], batch_size=128), verbose=False)
    return dict(metrics)


if __name__ == "__main__":
    print(main())
