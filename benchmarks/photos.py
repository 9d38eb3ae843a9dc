"""Views cut from photos of any size: relook's loop over the bare model.

    python benchmarks/photos.py --model lite0.onnx --data folder:photos [--images 256] [--views 8]
                                [--repeats 3]

`bare` is the ONNX file in one session with all threads, called with float batches that are ready
in memory (the faster of two batch sizes); `relook` cuts every view from the photo, which is decoded
already, resizes and predicts it. Views are the recipe's first candidates. All run in turns.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pool import rates, told

from relook.data import Dataset, Preparation, load_data
from relook.models import Predictor, load_model
from relook.models.onnx_runtime import open_session
from relook.policy.pool import sample_pool
from relook.predictions.passes import View, predict_views

BATCHES = (16, 64)


def bare(file: Path, images: Dataset, passes: int, batch: int) -> Callable[[], int]:
    """Return a function that runs the model alone, and says how many images it has seen."""
    session = open_session(file.read_bytes())
    (name,) = (one.name for one in session.get_inputs())
    shape = (batch, *images.images.shape[1:])
    ready = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)

    def run() -> int:
        for _ in range(passes // batch):
            session.run(None, {name: ready})
        return passes // batch * batch

    return run


def cut(predictor: Predictor, images: Dataset, views: int) -> Callable[[], int]:
    """Return a function that runs relook's loop."""
    pool = sample_pool("imagenet", views, 0)
    chosen = [View(sub, index) for index, sub in enumerate(pool)]

    def run() -> int:
        predict_views(predictor, images.images, chosen, seed=0)
        return views * len(images)

    return run


def main() -> None:
    """Print the ratio, and what it is made of."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--model", type=Path, required=True)
    options.add_argument("--data", required=True)
    options.add_argument("--images", type=int, default=256)
    options.add_argument("--views", type=int, default=8)
    options.add_argument("--repeats", type=int, default=3)
    given = options.parse_args()
    predictor = load_model(f"onnx:{given.model}", mean=0.498, std=0.502, outputs="logits")
    wanted = Preparation(full_size=True).for_model(predictor)
    whole = load_data(given.data, wanted)
    places = np.linspace(0, len(whole) - 1, min(given.images, len(whole))).astype(int)
    images = whole.subset(places)
    passes = given.views * len(images)
    runs = {f"bare, {n} at once": bare(given.model, images, passes, n) for n in BATCHES}
    runs["relook"] = cut(predictor, images, given.views)
    told("photos, of the bare model", rates(runs, given.repeats))


if __name__ == "__main__":
    main()
