"""What a search needs on many GPUs: measured costs, and a simulation of the cluster.

    python benchmarks/scaling.py [--measure] [--size 475] [--gpus 8 64 512]
    python benchmarks/scaling.py --validate

`--measure` measures on this machine what a view, a block and a stored byte cost (Ray must be
installed) and uses these instead of the figures below. The model's speed on a GPU is not
measured here: it is timm's published one for an RTX 4090. The simulation follows the engine:
each worker is given two blocks, the driver answers them one by one, a block's images go to each
node that needs them over the driver's network card. `--validate` predicts a small pool on a
local Ray with one and two workers, and prints what the simulation says beside it.
"""

from __future__ import annotations

import argparse
import heapq
import math
import statistics
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from relook.data import load_data
from relook.models import Predictor, TorchPredictor
from relook.models.small import new_small
from relook.policy import SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.views import apply_subpolicy
from relook.predictions.engines.ray import AHEAD, RayEngine
from relook.predictions.model_calls import running_on
from relook.predictions.passes import View, fill_store
from relook.predictions.store import BatchPlan, PredictionStore
from relook.transforms.centre_crop import CentreCrop
from relook.transforms.full_images import FullImages

POOL, IMAGES, CLASSES, GROUP = 900, 25_000, 1_000, 16
HELD_OUT = 41  # passes per image: the plain view, twenty random crops, the policy's twenty
PHOTO = (375, 500)  # a photo of ImageNet, on average
GPUS_A_NODE = 8
BATCH, WAIT = 64, 0.03  # of the small pool that is really predicted; seconds a batch


@dataclass(frozen=True)
class Network:
    """A model at a size: its speed on one GPU in passes a second, and the batch that fits."""

    size: int
    speed: float
    batch: int


# huggingface/pytorch-image-models, results/benchmark-infer-amp-nhwc-pt240-cu124-rtx4090.csv:
# tf_efficientnet_l2, 172 and 479 GMACs.
NETWORKS = {475: Network(475, 82.12, 128), 800: Network(800, 29.23, 48)}


@dataclass(frozen=True)
class Costs:
    """Seconds of one core a view, of the driver a block; bytes a second; seconds to start.

    `store` is how many bytes a second the driver writes, infinite where the workers do.
    """

    view: float
    answer: float
    store: float
    network: float = 10e9 / 8
    start: float = 120.0


MEASURED = {475: Costs(0.0062, 0.0036, 200e6), 800: Costs(0.0110, 0.0036, 200e6)}


@dataclass(frozen=True)
class Outcome:
    """What the simulation says: hours, the share of GPU time used, gigabytes sent, busy shares."""

    hours: float
    used: float
    sent: float
    driver: float
    card: float


@dataclass(frozen=True)
class Work:
    """What is predicted: a pool for images of so many bytes each."""

    pool: int = POOL
    images: int = IMAGES
    classes: int = CLASSES
    image_bytes: int = PHOTO[0] * PHOTO[1] * 3


IMAGENET = Work()


def simulate(
    network: Network, costs: Costs, gpus: int, work: Work = IMAGENET, seed: int = 0
) -> Outcome:
    """Follow the blocks of a whole pool through a cluster of `gpus` workers."""
    draws = np.random.default_rng(seed)
    plan = BatchPlan(work.pool, work.images, work.classes, network.batch, GROUP)
    todo = deque(plan.blocks())
    passes = work.pool * work.images
    ready = [(costs.start * float(draws.uniform(0.5, 1)), worker) for worker in range(gpus)] * AHEAD
    heapq.heapify(ready)
    free = np.zeros(gpus)  # when each GPU has finished what it was given
    driver = card = busy = computing = sent = last = 0.0
    known: set[tuple[int, int]] = set()
    while todo:
        asked, worker = heapq.heappop(ready)
        block = todo.popleft()
        stored = block.shape[0] * block.shape[1] * work.classes * 2 / costs.store
        driver = max(driver, asked) + costs.answer + stored
        busy += costs.answer + stored
        arrived = driver
        place = (worker // GPUS_A_NODE, block.images.start)
        if place not in known:
            known.add(place)
            size = block.shape[1] * work.image_bytes
            card = max(card, driver) + size / costs.network
            sent, arrived = sent + size, card
        seconds = block.shape[0] * block.shape[1] / network.speed * draws.uniform(0.97, 1.03)
        free[worker] = max(free[worker], arrived) + seconds
        computing += seconds
        last = max(last, float(free[worker]))
        heapq.heappush(ready, (float(free[worker]), worker))
    assert abs(computing * network.speed / passes - 1) < 0.03  # few blocks vary more
    share = busy / last, sent / costs.network / last
    return Outcome(last / 3600, computing / (gpus * last), sent / 1e9, *share)


def measure(size: int) -> Costs:
    """Measure on this machine: processor time of a view and a block, bytes stored a second."""
    return Costs(view=view_seconds(size), answer=answer_seconds(), store=store_speed())


def view_seconds(size: int, views: int = 24, images: int = 4) -> float:
    """Return the processor time of one view of a photo, of the imagenet recipe."""
    torch.set_num_threads(1)
    photos = _photos(images, size)
    pool = sample_pool("imagenet", views, 0)
    for turn in range(2):  # the first compiles
        start = time.process_time()
        for index, sub in enumerate(pool):
            apply_subpolicy(sub, photos, np.arange(images), turn, index)
        seconds = time.process_time() - start
    return seconds / (len(pool) * images)


def store_speed(blocks: int = 24) -> float:
    """Return how many bytes a second of processor time are stored in a directory."""
    plan = BatchPlan(GROUP, 128 * blocks, CLASSES, 128, GROUP)
    values = np.full((GROUP, 128, CLASSES), np.log(1 / CLASSES), np.float32)
    with tempfile.TemporaryDirectory() as directory:
        store = PredictionStore.open(directory, {}, plan, "float16")
        start = time.process_time()
        for block in plan.blocks():
            store.write(block, values)
        return 2 * values.size * blocks / (time.process_time() - start)


def answer_seconds(blocks: int = 400) -> float:
    """Return the driver's processor time for a block: handing it out, taking the answer."""
    images = torch.zeros((4 * blocks, 1, 8, 8), dtype=torch.uint8)
    views = [View(SubPolicy(), index) for index in range(GROUP)]
    nothing = Nothing()
    with (
        tempfile.TemporaryDirectory() as directory,
        RayEngine(workers=1) as engine,
        running_on(engine),
    ):
        fill_store(nothing, images[:4], views, f"{directory}/warm", seed=0, batch=4)
        start = time.process_time()
        fill_store(nothing, images, views, f"{directory}/store", seed=0, batch=4)
        return (time.process_time() - start) / blocks


def validate(workers: Sequence[int], turns: int) -> None:
    """Print what a pool takes here beside what the simulation says, by the clock.

    A small network, of which the simulation is told the local engine's speed; then a model that
    waits as for a GPU, and leaves the cores to views and driver.
    """
    torch.set_num_threads(1)
    images = load_data("digits").plain[:768]
    views = [View(sub, index) for index, sub in enumerate(sample_pool("small", 48, 0))]
    network = TorchPredictor(new_small(width=32, seed=0))
    _seconds(network, images[:BATCH], views, 1)  # the first compiles
    alone = _seconds(network, images, views, turns)
    print(f"local engine: {alone:.2f} s")
    for name, model, speed in (
        ("a small network", network, len(views) * len(images) / alone),
        ("a model that waits", Waiting(), BATCH / WAIT),
    ):
        print(f"{name}, {speed:,.0f} passes a second")
        for count in workers:
            _beside_simulation(model, speed, images, views, count, turns)


def _beside_simulation(
    model: Predictor,
    speed: float,
    images: torch.Tensor,
    views: list[View],
    workers: int,
    turns: int,
) -> None:
    with RayEngine(workers=workers) as engine, running_on(engine):
        _wait_for(engine, workers, model, images, views)
        real = _seconds(model, images, views, turns)
    work = Work(len(views), len(images), 10, images[0].numel())
    costs = replace(MEASURED[475], start=0.0)
    said = 3600 * simulate(Network(images.shape[-1], speed, BATCH), costs, workers, work).hours
    print(f"  workers {workers}: {real:.2f} s, simulated {said:.2f} s ({said / real - 1:+.0%})")


def _wait_for(
    engine: RayEngine, count: int, predictor: Predictor, images: torch.Tensor, views: list[View]
) -> None:
    """Predict until every worker has started, and has compiled what it needs."""
    while sum(worker.ready for worker in engine._workers) < count:
        _seconds(predictor, images[:BATCH], views, 1)
    _seconds(predictor, images, views, 1)


def _seconds(predictor: Predictor, images: torch.Tensor, views: list[View], turns: int) -> float:
    """Return the median seconds that it takes to fill a store."""
    taken = []
    for _ in range(turns):
        with tempfile.TemporaryDirectory() as directory:
            start = time.perf_counter()
            fill_store(predictor, images, views, f"{directory}/s", seed=0, batch=BATCH)
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)


class Nothing:
    """A model that costs nothing."""

    fingerprint = "nothing"
    classes = 2

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return an even distribution."""
        return torch.full((len(images), 2), float(np.log(0.5)))


class Waiting(Nothing):
    """A model that takes its time elsewhere, as on a GPU."""

    fingerprint = "waiting"

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Return an even distribution, after a while."""
        time.sleep(WAIT * len(images) / BATCH)
        return super().__call__(images)


def _photos(count: int, size: int) -> FullImages:
    height, width = PHOTO
    content = np.random.default_rng(0).integers(0, 256, (count, height, width, 3), dtype=np.uint8)
    return FullImages(
        content.reshape(-1),
        np.arange(count) * height * width * 3,
        np.full((count, 2), PHOTO),
        np.array([str(place) for place in range(count)]),
        CentreCrop((size, size), 0.875, 3, "bicubic"),
    )


def main() -> None:
    """Print one table for each size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--size", type=int, nargs="+", choices=list(NETWORKS), default=[475, 800])
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64, 512])
    parser.add_argument("--writes", choices=["driver", "workers"], default="workers")
    parser.add_argument("--gigabits", type=float, default=10.0, help="of the driver's network card")
    parser.add_argument(
        "--validate", action="store_true", help="run a small pool here, and compare"
    )
    given = parser.parse_args()
    if given.validate:
        validate((1, 2), turns=3)
        return
    for size in given.size:
        network = NETWORKS[size]
        costs = measure(size) if given.measure else MEASURED[size]
        costs = replace(costs, network=given.gigabits * 1e9 / 8)
        plan = BatchPlan(POOL, IMAGES, CLASSES, network.batch, GROUP)
        counted = Counter(block.shape for block in plan.blocks()).total()
        print(f"EfficientNet-L2 at {size} pixels, batches of {network.batch}: {counted:,} blocks")
        print(
            f"  a view {1000 * costs.view:.1f} ms of a core, so {costs.view * network.speed:.2f} "
            f"cores a GPU; a block {1000 * costs.answer:.2f} ms of the driver; "
            f"{costs.store / 1e6:,.0f} MB/s stored"
        )
        if given.writes == "workers":
            costs = replace(costs, store=math.inf)
        for gpus in given.gpus:
            found = simulate(network, costs, gpus)
            proof = HELD_OUT * IMAGES / network.speed / gpus / 3600
            print(
                f"  {gpus:4} GPUs: {found.hours:7.2f} h, {found.used:4.0%} of the GPUs' time, "
                f"{found.sent:6.0f} GB of images sent (card {found.card:4.0%}, "
                f"driver {found.driver:4.1%} busy); the proof {proof:5.2f} h more"
            )


if __name__ == "__main__":
    main()
