"""What can be said of a model beside its spec."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relook.errors import RelookError
from relook.models.base import InputSpec, Outputs
from relook.models.torch_module import Channels

USUAL_CROP = 0.875
"""The crop share where the source says nothing of its images: that of most ImageNet models."""


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
            known = InputSpec(size, crop=USUAL_CROP)
        crop = known.crop if self.crop is None else self.crop
        return replace(known, size=size or known.size, crop=crop)

    def refuse(self, source: str, *names: str) -> None:
        """Raise if one of the named options is given: the source brings its own (logits)."""
        given = [name for name in names if getattr(self, name) not in (None, False, "logits")]
        if given:
            raise RelookError(
                f"expected no {' or '.join(given)} with {source}, which brings its own: "
                "leave them out"
            )
