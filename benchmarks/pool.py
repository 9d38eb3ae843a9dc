"""Prediction over a pool: end to end against the bare model, and against the naive loop.

    python benchmarks/pool.py [--threads 2] [--repeats 3] [--views 32] [--images 1024]

Prints images/s and ratios; everything that is compared runs in turns in one process. The
networks have random weights: only the time matters. `bare` calls the model on batches that
are ready in memory; `pool` is relook's own loop, views, checks and all; `naive` is, for each
sub-policy, a DataLoader whose data set applies Pillow to one image after another, and torch
as it comes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pillow_views import PILLOW

from relook.models import Predictor, TorchPredictor
from relook.models.accelerate import accelerate
from relook.policy import SubPolicy
from relook.pool import sample_pool
from relook.predict import View, predict_views

BATCH = {32: 256, 224: 16}


class Block(nn.Module):
    """A residual block: basic (3×3, 3×3), or bottleneck (1×1, 3×3, 1×1) where wide > 1."""

    def __init__(self, inside: int, width: int, stride: int, wide: int) -> None:
        super().__init__()
        out = width * wide
        kernels = ((1, 1), (3, stride), (1, 1)) if wide > 1 else ((3, stride), (3, 1))
        layers: list[nn.Module] = []
        channels = inside
        for place, (kernel, step) in enumerate(kernels):
            last = place == len(kernels) - 1
            after = out if last else width
            layers += [
                nn.Conv2d(channels, after, kernel, step, kernel // 2, bias=False),
                nn.BatchNorm2d(after),
            ]
            layers += [] if last else [nn.ReLU()]
            channels = after
        self.body = nn.Sequential(*layers)
        same = stride == 1 and inside == out
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(body(x) + shortcut(x))."""
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(
    stem: Sequence[nn.Module],
    inside: int,
    stages: Sequence[tuple[int, int]],
    wide: int,
    classes: int,
) -> nn.Module:
    """Return a residual network; `stages` are (width, blocks), each but the first at half size."""
    torch.manual_seed(0)
    layers = list(stem)
    for number, (width, blocks) in enumerate(stages):
        for block in range(blocks):
            stride = 2 if number and block == 0 else 1
            layers.append(Block(inside, width, stride, wide))
            inside = width * wide
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes)]
    return nn.Sequential(*layers, *head).eval()


def resnet20() -> nn.Module:
    """Return CIFAR's ResNet-20: 0.27 million weights, 41 million multiply-adds at 32×32."""
    stem = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return resnet(stem, 16, ((16, 3), (32, 3), (64, 3)), 1, 10)


def resnet50() -> nn.Module:
    """Return a network of ResNet-50's size: 25.6 million weights, 4.1 billion at 224×224."""
    stem = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    return resnet(stem, 64, ((64, 3), (128, 4), (256, 6), (512, 3)), 4, 1000)


class PillowViews(Dataset[Tensor]):
    """One sub-policy's views, made by Pillow one by one when they are asked for."""

    def __init__(self, subpolicy: SubPolicy, images: Tensor) -> None:
        self.subpolicy, self.images = subpolicy, images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor:
        picture = Image.fromarray(self.images[index].permute(1, 2, 0).numpy())
        for step in self.subpolicy.all_steps:
            picture = PILLOW[step.transform](picture, step.value, step.fixed_draws or {})
        return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def bare(predictor: Predictor, images: Tensor, views: int, batch: int) -> Callable[[], int]:
    """Return a function that runs the model alone, and says how many images it has seen."""
    batches = [images[begin : begin + batch] for begin in range(0, len(images), batch)]

    def run() -> int:
        for _ in range(views):
            for each in batches:
                predictor(each)
        return views * len(images)

    return run


def pooled(predictor: Predictor, images: Tensor, pool: Sequence[SubPolicy]) -> Callable[[], int]:
    """Return a function that runs relook's loop."""
    views = [View(sub, index) for index, sub in enumerate(pool)]

    def run() -> int:
        predict_views(predictor, images, views, seed=0)
        return len(views) * len(images)

    return run


def naive(predictor: Predictor, images: Tensor, pool: Sequence[SubPolicy]) -> Callable[[], int]:
    """Return a function that runs the loop that one would write first."""

    def run() -> int:
        for sub in pool:
            for batch in DataLoader(PillowViews(sub, images), batch_size=256):
                predictor(batch)
        return len(pool) * len(images)

    return run


def rates(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, float]:
    """Return images/s of each, the best of a few turns; the turns are taken in rotation."""
    best = dict.fromkeys(runs, 0.0)
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            seen = run()
            best[name] = max(best[name], seen / (time.perf_counter() - start))
    return best


def random_images(count: int, side: int) -> Tensor:
    """Return smooth random images, uint8 `[n, 3, side, side]`."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
    images = nn.functional.interpolate(
        torch.from_numpy(coarse).float(), (side, side), mode="bilinear"
    )
    return images.to(torch.uint8)


def measure(side: int, arguments: argparse.Namespace) -> None:
    """Print the figures for one image size."""
    small = side == 32
    images = random_images(arguments.images if small else 16, side)
    pool = sample_pool("cifar" if small else "imagenet", arguments.views if small else 4, 0)
    eager = TorchPredictor(resnet20() if small else resnet50(), classes=10 if small else 1000)
    fast = accelerate(eager, images)
    pooled(fast.predictor, images[:16], pool)()  # compiles the kernels
    runs = {
        "bare": bare(fast.predictor, images, len(pool), BATCH[side]),
        "pool": pooled(fast.predictor, images, pool),
    }
    told(f"{side}×{side}, {fast.engine}, of the bare model", rates(runs, arguments.repeats))
    if small:
        few, part = images[: max(64, len(images) // 4)], pool[::4]
        runs = {"naive": naive(eager, few, part), "pool": pooled(fast.predictor, few, part)}
        told("against the naive loop", rates(runs, arguments.repeats))


def told(what: str, best: dict[str, float]) -> None:
    """Print the rates, and the last one over the first."""
    (first, base), (last, own) = best.items()
    print(f"{what}: {own / base:.2f} ({first} {base:,.0f}, {last} {own:,.0f} images/s)", flush=True)


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--views", type=int, default=32)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 224], choices=[32, 224])
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads, load {os.getloadavg()[0]:.1f}")
    for side in arguments.sides:
        measure(side, arguments)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
