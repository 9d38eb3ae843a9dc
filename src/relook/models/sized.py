"""A torch predictor that knows what images it takes."""

from __future__ import annotations

from torch import nn

from relook.models.base import InputSpec
from relook.models.options import ModelOptions
from relook.models.torch_module import Channels, TorchPredictor


class SizedTorchPredictor(TorchPredictor):
    """A torch predictor with `input`: what its source says of its images, None if nothing."""

    def __init__(
        self,
        module: nn.Module,
        options: ModelOptions,
        *,
        known: InputSpec | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        classes: int | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """`known`, `mean` and `std` are the source's own; the options go before them."""
        super().__init__(
            module,
            mean=mean if options.mean is None else options.mean,
            std=std if options.std is None else options.std,
            outputs=options.outputs or "logits",
            device=options.device,
            classes=classes,
            fingerprint=fingerprint,
        )
        self.input = options.input_spec(known)
