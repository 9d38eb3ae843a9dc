"""Prediction over a pool: end to end against the bare model, and against the naive loop.

    python benchmarks/pool.py [--threads 2] [--repeats 5] [--views 32] [--images 1024]
                              [--plots docs/images]

Prints images/s and ratios; everything that is compared runs in turns in one process, after a
short pause each, because threads keep spinning after their work. The networks have random
weights: only the time matters. `bare` is one session of ONNX Runtime as it comes, with all
threads, called with batches that are ready in memory (the faster of two batch sizes); `pool`
is relook's own loop, views, checks and all; `naive` is, for each sub-policy, a DataLoader whose
data set applies Pillow to one image after another, and torch as it comes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pillow_views import PILLOW

from relook.models import Predictor, TorchPredictor
from relook.models.accelerate import accelerate
from relook.models.onnx_runtime import INPUT, export_network, open_session
from relook.policy import SubPolicy
from relook.policy.pool import sample_pool
from relook.predictions.passes import View, predict_views

BATCHES = {32: (64, 256), 224: (4, 16)}
_PAUSE = 0.2


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


def bare(predictor: TorchPredictor, images: Tensor, views: int, batch: int) -> Callable[[], int]:
    """Return a function that runs the model alone, and says how many images it has seen."""
    session = open_session(export_network(predictor, images))
    batches = [images[begin : begin + batch].numpy() for begin in range(0, len(images), batch)]

    def run() -> int:
        for _ in range(views):
            for each in batches:
                session.run(None, {INPUT: each})
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


class Rate(NamedTuple):
    """Images a second, by the clock and of processor time."""

    wall: float
    cpu: float


def rates(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, Rate]:
    """Return the rate of each, the best of a few turns; the turns are taken in rotation."""
    best = dict.fromkeys(runs, Rate(0.0, 0.0))
    for _ in range(repeats):
        for name, run in runs.items():
            time.sleep(_PAUSE)
            wall, cpu = time.perf_counter(), time.process_time()
            seen = run()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            best[name] = Rate(max(best[name].wall, seen / wall), max(best[name].cpu, seen / cpu))
    return best


def random_images(count: int, side: int) -> Tensor:
    """Return smooth random images, uint8 `[n, 3, side, side]`."""
    coarse = np.random.default_rng(0).integers(0, 256, (count, 3, 8, 8), dtype=np.uint8)
    images = nn.functional.interpolate(
        torch.from_numpy(coarse).float(), (side, side), mode="bilinear"
    )
    return images.to(torch.uint8)


def contestants(
    side: int, images: int, views: int
) -> tuple[TorchPredictor, Tensor, list[SubPolicy]]:
    """Return a network in eager torch, images and a pool of the size that is asked for."""
    small = side < 224
    pool = sample_pool("cifar" if small else "imagenet", views, 0)
    eager = TorchPredictor(resnet20() if small else resnet50(), classes=10 if small else 1000)
    return eager, random_images(images, side), list(pool)


def measure(side: int, arguments: argparse.Namespace) -> None:
    """Print the figures for one image size."""
    small = side == 32
    size = (arguments.images, arguments.views) if small else (16, 4)
    eager, images, pool = contestants(side, *size)
    fast = accelerate(eager, images)
    pooled(fast.predictor, images[:16], pool)()  # compiles the kernels
    runs = {f"bare, {n} at once": bare(eager, images, len(pool), n) for n in BATCHES[side]}
    runs["pool"] = pooled(fast.predictor, images, pool)
    told(f"{side}×{side}, {fast.engine}, of the bare model", rates(runs, arguments.repeats))
    if small:
        # The naive loop's rate is the same for fewer images, and it is slow.
        few, part = images[: max(64, len(images) // 4)], pool[::4]
        runs = {"naive": naive(eager, few, part), "pool": pooled(fast.predictor, images, pool)}
        told("against the naive loop", rates(runs, arguments.repeats))


def told(what: str, found: dict[str, Rate]) -> None:
    """Print the rates, and the last one over the best of the others."""
    *others, own = found.values()
    base = Rate(*(max(rate) for rate in zip(*others, strict=True)))
    shown = ", ".join(f"{name} {rate.wall:,.0f}" for name, rate in found.items())
    print(
        f"{what}: {own.wall / base.wall:.2f}, by processor time {own.cpu / base.cpu:.2f} "
        f"({shown} images/s)",
        flush=True,
    )


def seconds(side: int, images: int, views: int, threads: int, repeats: int) -> dict[str, float]:
    """Return how long each way takes for a pool of ResNet-20's."""
    torch.set_num_threads(threads)
    eager, pixels, pool = contestants(side, images, views)
    fast = accelerate(eager, pixels, mode="onnx").predictor
    pooled(fast, pixels[:4], pool)()  # compiles the kernels
    runs = {
        "naive loop": naive(eager, pixels, pool),
        "relook": pooled(fast, pixels, pool),
        "model alone, one session": bare(eager, pixels, len(pool), 256),
    }
    return {name: images * views / rate.wall for name, rate in rates(runs, repeats).items()}


def plots(folder: Path, threads: int, repeats: int) -> None:
    """Draw how the time grows with the pool, the side of the images and the threads."""
    import matplotlib.pyplot as plt

    panels: dict[str, dict[int, dict[str, float]]] = {
        "sub-policies, of 128 images": {
            views: seconds(32, 128, views, threads, repeats) for views in (4, 8, 16, 32)
        },
        "side, pixels (4 views of 64 images)": {
            side: seconds(side, 64, 4, threads, repeats) for side in (16, 32, 64, 128)
        },
        f"threads ({os.cpu_count()} cores; 8 views of 128)": {
            count: seconds(32, 128, 8, count, repeats) for count in (1, 2, 4)
        },
    }
    torch.set_num_threads(threads)
    figure, all_axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    for axes, (label, found) in zip(all_axes, panels.items(), strict=True):
        for name in next(iter(found.values())):
            axes.loglog(list(found), [each[name] for each in found.values()], "o-", label=name)
        axes.set(xlabel=label, ylabel="seconds")
        axes.set_xticks(list(found), [str(x) for x in found], minor=False)
        axes.minorticks_off()
    handles, names = all_axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "pool-growth.svg")


def main() -> None:
    """Read the options and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--views", type=int, default=32)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--sides", type=int, nargs="+", default=[32, 224], choices=[32, 224])
    parser.add_argument("--plots", type=Path, help="folder for the figure; measures nothing else")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"{arguments.threads} threads, load {os.getloadavg()[0]:.1f}")
    if arguments.plots is not None:
        plots(arguments.plots, arguments.threads, arguments.repeats)
        arguments.sides = []
    for side in arguments.sides:
        measure(side, arguments)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
