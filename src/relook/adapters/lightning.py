"""A Lightning callback that scores test-time augmentation next to the plain test metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relook.deploy import TTA
from relook.errors import RelookError
from relook.policy import Policy

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    raise RelookError(
        "TTACallback needs Lightning, which is not installed: run  pip install lightning"
    ) from None


class TTACallback(Callback):
    """Logs `test_tta_accuracy` and `test_tta_ll` of a module's network, averaged over views.

    `policy` is a `relook.Policy`, its file, or the name of a preset (`flip`, `10c` …); `options`
    are those of `relook.TTA`: `views`, `mean`, `std` … Batches of the test loader are images, as
    TTA takes them (uint8, or floats in [0, 1], before normalisation), and labels. The network is
    the module itself, or its attribute named `network`. With `calibrate`, temperatures are fitted
    on the validation batches of `trainer.validate`, which has to run before the test.
    """

    def __init__(
        self,
        policy: Policy | str | Path = "flip",
        *,
        network: str | None = None,
        calibrate: bool = False,
        **options: Any,
    ) -> None:
        self._policy, self._network, self._options = policy, network, options
        self._calibrate = calibrate
        self._seen: list[tuple[Tensor, Tensor]] = []
        self.tta: TTA | None = None

    def setup(self, trainer: Any, pl_module: nn.Module, stage: str) -> None:
        """Wrap the network, once."""
        if self.tta is None:
            model = pl_module if self._network is None else getattr(pl_module, self._network)
            chosen = self._policy
            policy = chosen if isinstance(chosen, Policy) else Policy.load(chosen)
            own = {} if policy.temperatures else {"temperature": None}  # a preset has none yet
            self.tta = TTA(model, policy, **{**own, **self._options})

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Keep a batch for calibration, but not during training."""
        if self._calibrate and trainer.state.fn == "validate":
            self._seen.append((batch[0].cpu(), batch[1].cpu()))

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Fit the temperatures on the batches that were kept."""
        if self._seen and self.tta is not None:
            images, labels = (torch.cat(parts) for parts in zip(*self._seen, strict=True))
            self.tta.calibrate(images, labels.numpy())
            self._seen = []

    def on_test_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Log the batch's accuracy and mean log-likelihood with all views."""
        if self.tta is None:
            return
        images, labels = batch[0], batch[1]
        probabilities = torch.from_numpy(self.tta.predict_proba(images))
        own = probabilities.gather(1, labels.cpu().long()[:, None]).clamp(min=1e-30).log()
        right = (probabilities.argmax(1) == labels.cpu()).float().mean()
        for name, value in (("accuracy", right), ("ll", own.mean())):
            pl_module.log(f"test_tta_{name}", value, on_epoch=True, batch_size=len(labels))
