"""A network whose predictions can be worked out by hand, and images for it."""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from relook.data import Dataset

SURE = 0.8
DARK, BRIGHT = 50, 200


@dataclass
class ByBrightness:
    """Says class 1 for bright images, with 80 %; class 0 for dark ones. Keeps what it has `seen`.

    It is interrupted before the call `stop_at`.
    """

    classes: int = 2
    stop_at: int | None = None
    seen: list[Tensor] = field(default_factory=list)
    fingerprint: str = "by brightness"

    @property
    def calls(self) -> int:
        """How often it was called."""
        return len(self.seen)

    @property
    def passes(self) -> int:
        """How many images it was shown."""
        return sum(map(len, self.seen))

    def __call__(self, images: Tensor) -> Tensor:
        if self.calls == self.stop_at:
            raise KeyboardInterrupt
        self.seen.append(images.clone())
        bright = images.double().mean((1, 2, 3)) > 127.5
        chances = torch.full((len(images), self.classes), (1 - SURE) / (self.classes - 1))
        chances[torch.arange(len(images)), bright.long()] = SURE
        return chances.log()


def bright_and_dark(images: int = 40, wrong: int = 0) -> Dataset:
    """Return images of one grey level each, every second one bright; some labels are wrong.

    They are taken for different images, though many are alike, as are sets of other sizes.
    """
    bright = np.arange(images) % 2
    levels = np.where(bright, BRIGHT, DARK).astype(np.uint8)
    pixels = torch.from_numpy(levels)[:, None, None, None].expand(-1, 3, 32, 32).contiguous()
    labels = bright.copy()
    labels[:wrong] = 1 - labels[:wrong]
    identities = (2 * np.arange(images) + 10_000 * images).astype(np.uint64)
    return Dataset(pixels, labels, ("dark", "bright"), "halves", identities=identities)
