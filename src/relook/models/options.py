"""What can be said of a model besides its spec."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from relook.errors import RelookError
from relook.models.base import InputSpec, Outputs
from relook.models.torch_module import Channels, TorchPredictor


@dataclass(frozen=True)
class ModelOptions:
    """What a command line can say about a model; None leaves it to the source.

    `size` is one side or `(height, width)` in pixels, `crop` the share of the shorter side
    that the input is; `pretrained` fetches the source's own weights.
    """

    mean: Channels | None = None
    std: Channels | None = None
    outputs: Outputs | None = None
    device: str = "cpu"
    size: int | tuple[int, int] | None = None
    crop: float | None = None
    pretrained: bool = False

    def input_spec(self, known: InputSpec | None = None) -> InputSpec | None:
        """Return what the source knows of its images, with what is said here in its place."""
        size = (self.size, self.size) if isinstance(self.size, int) else self.size
        if known is None:
            if size is None:
                return None
            known = InputSpec(size)
        crop = known.crop if self.crop is None else self.crop
        return replace(known, size=size or known.size, crop=crop)

    def normalisation(
        self, mean: Channels | None, std: Channels | None
    ) -> tuple[Channels | None, Channels | None]:
        """Return the source's mean and std, with what is said here in their place."""
        return mean if self.mean is None else self.mean, std if self.std is None else self.std

    def predictor(
        self,
        module: nn.Module,
        *,
        known: InputSpec | None = None,
        mean: Channels | None = None,
        std: Channels | None = None,
        classes: int | None = None,
        fingerprint: str | None = None,
    ) -> TorchPredictor:
        """Return a module as a predictor; `known`, `mean` and `std` are the source's own."""
        mean, std = self.normalisation(mean, std)
        return TorchPredictor(
            module,
            mean=mean,
            std=std,
            outputs=self.outputs or "logits",
            device=self.device,
            classes=classes,
            input=self.input_spec(known),
            fingerprint=fingerprint,
        )

    def refuse(self, source: str, *names: str) -> None:
        """Raise if one of the named options is given: the source brings its own (logits)."""
        given = [name for name in names if getattr(self, name) not in (None, False, "logits")]
        if given:
            raise RelookError(
                f"expected no {' or '.join(given)} with {source}, which brings its own: "
                "leave them out"
            )
