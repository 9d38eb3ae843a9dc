"""What a policy costs at prediction time: relook.TTA beside bare passes of the same network.

    python benchmarks/inference.py [--rounds 7] [--weights resnet20.th] [--threads 1]

The policy has ten distinct views, five of them with a bicubic step. Bare passes get images that
are normalised floats already; TTA gets uint8 and makes its views. Flips alone run beside ttach,
which is given the normalisation of the uint8 images to do as well. Contestants take turns within
each round; each keeps its best round, by the clock and by the processor's time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.views import photos

from relook import TTA, Policy, Step, SubPolicy
from relook.models import TorchPredictor, load_model
from relook.models.cifar_networks import CIFAR_NETWORKS

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FLIPS = Policy((SubPolicy(), SubPolicy((Step("flip", 0),))), recipe=None)


class Spent(NamedTuple):
    """Seconds on the clock, and of all cores together."""

    wall: float
    cpu: float


def ten_views() -> Policy:
    """Return ten distinct views, five of them with a bicubic step."""
    crops = [
        Step("crop_flip", 4, draws={"x": x, "y": y, "flip": flip})
        for x, y, flip in (
            (0.1, 0.2, 0),
            (0.9, 0.3, 1),
            (0.4, 0.8, 0),
            (0.6, 0.5, 1),
            (0.2, 0.7, 1),
        )
    ]
    bicubic = [
        Step("rotate", 6, draws={"sign": 1}),
        Step("rotate", 9, draws={"sign": -1}),
        Step("shear_x", 8, draws={"sign": 1, "edge": 0}),
        Step("shear_y", 8, draws={"sign": -1, "edge": 1}),
        Step("zoom", 8, draws={"x": 0.5, "y": 0.5}),
    ]
    others = [
        SubPolicy(),
        SubPolicy((Step("flip", 0),)),
        SubPolicy((Step("autocontrast", 4),), crops[0]),
        SubPolicy((Step("contrast", 6, 1), Step("brightness", 4, -1)), crops[1]),
        SubPolicy((Step("sharpness", 8, 1),), crops[2]),
    ]
    made = [SubPolicy((step,), finish) for step, finish in zip(bicubic, crops, strict=True)]
    return Policy((*others, *made))


def networks(weights: Path | None) -> dict[str, tuple[nn.Module, int, tuple[int, ...]]]:
    """Return the networks by name, with the images' side and the batch sizes to run."""
    if weights is None:
        small: nn.Module = CIFAR_NETWORKS["resnet20"].build(10)
    else:
        predictor = load_model(f"cifar:resnet20@{weights}")
        assert isinstance(predictor, TorchPredictor)
        small = predictor.module
    from torchvision.models import resnet50

    large = resnet50(weights=None)
    return {
        "ResNet-20": (small.eval(), 32, (1, 16, 128)),
        "ResNet-50": (large.eval(), 224, (1, 4)),
    }


def normalised(images: Tensor) -> Tensor:
    """Return float images as the networks take them."""
    mean, std = (torch.tensor(v).reshape(1, 3, 1, 1) for v in (MEAN, STD))
    return (images.float() / 255 - mean) / std


def contestants(network: nn.Module, images: Tensor) -> dict[str, Callable[[], object]]:
    """Return what is measured, by name."""
    ready = normalised(images)
    whole = TTA(network, ten_views(), temperature=1.2, mean=MEAN, std=STD)
    flips = TTA(network, FLIPS, temperature=1.2, mean=MEAN, std=STD)
    found: dict[str, Callable[[], object]] = {
        "10 bare": lambda: [network(ready) for _ in range(10)],
        "10 views": lambda: whole(images),
        "2 flips": lambda: flips(images),
    }
    try:
        import ttach
    except ImportError:
        print("ttach is not installed: flips are not compared")
        return found
    peer = ttach.ClassificationTTAWrapper(network, ttach.Compose([ttach.HorizontalFlip()]))
    found["ttach"] = lambda: peer(normalised(images)).softmax(-1)
    return found


def measure(
    runs: Mapping[str, Callable[[], object]], rounds: int, pause: float = 0.0
) -> dict[str, Spent]:
    """Return each contestant's best round, after one that warms up; each starts after a pause."""
    best: dict[str, Spent] = {}
    with torch.no_grad():
        for turn in range(rounds + 1):
            for name, run in runs.items():
                time.sleep(pause)
                wall, cpu = time.perf_counter(), time.process_time()
                run()
                spent = Spent(time.perf_counter() - wall, time.process_time() - cpu)
                if turn:
                    old = best.get(name, spent)
                    best[name] = Spent(min(old.wall, spent.wall), min(old.cpu, spent.cpu))
    return best


def report(name: str, count: int, best: Mapping[str, Spent]) -> None:
    """Print one line of ratios, by the clock and by the processor's time."""
    bare, views = best["10 bare"], best["10 views"]
    line = (
        f"{name:<10} batch {count:>3}: 10 views {views.wall / bare.wall:5.2f} × 10 bare passes "
        f"(processor {views.cpu / bare.cpu:5.2f})"
    )
    if "ttach" in best:
        flips, peer = best["2 flips"], best["ttach"]
        line += f"; flips {flips.wall / peer.wall:5.2f} × ttach ({flips.cpu / peer.cpu:5.2f})"
    print(f"{line}; bare pass {100 * bare.wall:.2f} ms", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every network at every batch size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--weights", type=Path, help="weights of the ResNet-20; random without")
    parser.add_argument("--threads", type=int, help="torch's threads; all cores without")
    given = parser.parse_args(arguments)
    if given.threads is not None:
        torch.set_num_threads(given.threads)
    for name, (network, side, counts) in networks(given.weights).items():
        for count in counts:
            images = torch.from_numpy(photos(side, count))
            report(name, count, measure(contestants(network, images), given.rounds))


if __name__ == "__main__":
    main()
