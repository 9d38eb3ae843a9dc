"""Views, a model whose outputs are exact, and what a directory holds: shared by tests of passes."""

import math
from pathlib import Path

import torch
from torch import Tensor

from relook.policy import Step, SubPolicy
from relook.predictions.passes import View
from relook.predictions.store import PredictionStore

FINISH = Step("crop_flip", 2)
FLIP = SubPolicy((Step("flip", 0),))
FIXED = SubPolicy((Step("rotate", 13, draws={"sign": 1}),))
FRESH = [SubPolicy((Step("rotate", m), Step("brightness", m, 1)), FINISH) for m in (3.0, 9.0, 15.0)]
VIEWS = [View(sub, i) for i, sub in enumerate([SubPolicy(), *FRESH, FLIP, FIXED, FRESH[0]])]


def done_blocks(store: PredictionStore) -> tuple[int, int]:
    """How many blocks of a store are done, and how many there are."""
    done = [store.is_done(block) for block in store.plan.blocks()]
    return sum(done), len(done)


class Toy:
    """Exact in float64, so an image's outputs do not depend on its batch."""

    fingerprint = "toy"
    classes: int | None = 4

    def __init__(self, fail_after: float = math.inf, error: type[BaseException] = RuntimeError):
        self.calls = 0
        self.sizes: list[int] = []
        self.fail_after = fail_after
        self.error = error

    def __call__(self, images: Tensor) -> Tensor:
        if self.calls >= self.fail_after:
            raise self.error("out of\nmemory")
        self.calls += 1
        self.sizes.append(len(images))
        flat = images.flatten(1).double()
        places = torch.arange(flat.shape[1])
        weights = torch.stack([(places * k + k) % 7 for k in (1, 2, 3, 5)]).double()
        return ((flat @ weights.T) / 5000).log_softmax(1).float()


def contents(path: Path) -> dict[str, bytes]:
    files = (p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
    return {str(p.relative_to(path)): p.read_bytes() for p in files}
