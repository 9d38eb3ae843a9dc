"""What an exported policy costs: the ONNX file of ten views beside ten runs of the bare network.

    python benchmarks/inference_onnx.py [--rounds 7] [--weights resnet20.th] [--threads 1]

Both run in ONNX Runtime and take the same uint8 images, on photographs. Contestants take turns
within each round; each keeps its best round. Each waits until the threads of the one before are
asleep: ONNX Runtime's spin for some 30 ms after a run, on the cores that the next contestant needs,
and runs of one small image take less than that.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.inference import MEAN, STD, Spent, measure, networks, ten_views
from benchmarks.views import photos

import relook
from relook.models import TorchPredictor
from relook.models.onnx_runtime import export_network, open_session

PAUSE = 0.2
"""Seconds before each run."""


def sessions(predictor: TorchPredictor, side: int) -> dict[str, Any]:
    """Return the bare network and the exported file, ready to run."""
    images = torch.from_numpy(photos(side, 4))
    bare = open_session(export_network(predictor, images))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        done = relook.export(predictor, ten_views(), path, temperature=1.2, images=images)
        print(f"  {done.nbytes / 1e6:.1f} MB; {done.check}")
        return {"bare": bare, "exported": open_session(path.read_bytes())}


def contestants(ready: Mapping[str, Any], images: Tensor) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    fed = {"images": images.numpy()}
    return {
        "10 bare": lambda: [ready["bare"].run(None, fed) for _ in range(10)],
        "exported": lambda: ready["exported"].run(None, fed),
    }


def report(name: str, count: int, best: Mapping[str, Spent]) -> None:
    """Print one line of ratios, by the clock and by the processor's time."""
    bare, exported = best["10 bare"], best["exported"]
    print(
        f"{name:<10} batch {count:>3}: exported {exported.wall / bare.wall:5.2f} × 10 bare runs "
        f"(processor {exported.cpu / bare.cpu:5.2f}); bare {100 * bare.wall:.2f} ms",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every network at every batch size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--weights", type=Path, help="weights of the ResNet-20; random without")
    parser.add_argument("--threads", type=int, help="threads; all cores without")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    for name, (network, side, counts) in networks(given.weights).items():
        ready = sessions(TorchPredictor(network, mean=MEAN, std=STD), side)
        for count in counts:
            images = torch.from_numpy(photos(side, count))
            report(name, count, measure(contestants(ready, images), given.rounds, PAUSE))


if __name__ == "__main__":
    main()
