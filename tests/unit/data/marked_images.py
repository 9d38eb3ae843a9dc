"""Images that say who they are and how they were turned, so that a test can dictate predictions.

Each carries its number in one corner; a quarter turn moves it to the next, and a predictor
reads off which image it sees, in which of the four turns.
"""

from collections import Counter

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import log_softmax
from torch import Tensor

from relook.data import Dataset
from relook.models import CallablePredictor
from relook.policy import Policy, Step, SubPolicy

SIDE = 8
TURNS = (SubPolicy(), *(SubPolicy((Step("quarter_turn", k),)) for k in (1, 2, 3)))
TURNED = Policy(TURNS, recipe="small", seen=b"")

FloatArray = NDArray[np.float64]


def marked(labels: NDArray[np.int64], classes: int = 4) -> Dataset:
    """Return images that carry their numbers, up to 255 · 256 of them."""
    images = np.zeros((len(labels), 1, SIDE, SIDE), dtype=np.uint8)
    numbers = np.arange(len(labels))
    images[:, 0, 0, 0] = numbers // 256 + 1
    images[:, 0, 1, 1] = numbers % 256
    names = tuple(f"class {i}" for i in range(classes))
    return Dataset(torch.from_numpy(images), labels, names, "marked")


class Oracle:
    """A predictor that answers from a table of logits `[turn, image, class]`, and counts."""

    def __init__(self, logits: FloatArray) -> None:
        self.log_probs = torch.from_numpy(log_softmax(logits, axis=-1)).float()
        self.seen: Counter[tuple[int, int]] = Counter()
        classes = logits.shape[-1]
        self.predictor = CallablePredictor(self.answer, outputs="log_probs", classes=classes)

    def answer(self, images: Tensor) -> Tensor:
        """Read off image and turn, and look the prediction up."""
        last = SIDE - 1
        found = []
        for image in images[:, 0].long():
            upright = [torch.rot90(image, -k) for k in range(4)]
            turn = next(k for k in range(4) if upright[k][0, 0])
            number = int((upright[turn][0, 0] - 1) * 256 + upright[turn][1, 1])
            assert not upright[turn][last, last]
            self.seen[turn, number] += 1
            found.append(self.log_probs[turn, number])
        return torch.stack(found)


def noisy(
    images: int = 400, classes: int = 4, seed: int = 0, noise: tuple[float, ...] = (2.0,) * 4
) -> tuple[Dataset, FloatArray]:
    """Return images and logits that hold the label under noise of their own for each turn."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, images)
    logits = generator.normal(size=(4, images, classes)) * np.array(noise)[:, None, None]
    logits[:, np.arange(images), labels] += 3
    return marked(labels, classes), logits
