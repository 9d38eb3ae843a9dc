"""How fast views are made: relook, the same steps in Pillow, and other libraries on theirs.

    python benchmarks/views.py [--rounds 5] [--plots docs/images]

All contestants run in turns within each round, on all cores; each keeps its best round, and a
ratio compares best with best. Peers that are not installed are skipped with a line.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_sample_images

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.pillow_views import pillow_views
from benchmarks.view_peers import MAGNITUDE, PEERS, Peer, load

from relook import Step, SubPolicy
from relook.policy.pool import sample_pool
from relook.policy.recipes import Group, get_recipe
from relook.policy.views import apply_subpolicy, draws_for_batch
from relook.transforms import TRANSFORMS
from relook.transforms.apply import apply_kernels

CORES = len(os.sched_getaffinity(0))
SUBPOLICIES = 40
# OpenMP's threads go on spinning after torch's work; they must not run into the next one's time.
_PAUSE = 0.3
SETTINGS = (("cifar", 32, 256), ("imagenet", 224, 16))


class Spent(NamedTuple):
    """Seconds on the clock, and of all cores together."""

    wall: float
    cpu: float


@lru_cache(maxsize=16)
def photos(side: int, count: int) -> NDArray[np.uint8]:
    """Return pieces of two photographs, uint8 `[count, 3, side, side]`."""
    generator = np.random.default_rng(side)
    found = []
    for i in range(count):
        picture = load_sample_images().images[i % 2]
        cut = int(generator.integers(224, 427))
        top, left = generator.integers(0, [427 - cut + 1, 640 - cut + 1])
        piece = Image.fromarray(picture[top : top + cut, left : left + cut])
        found.append(np.asarray(piece.resize((side, side), Image.Resampling.BICUBIC)))
    return np.ascontiguousarray(np.stack(found).transpose(0, 3, 1, 2))


@lru_cache(maxsize=4)
def subpolicies(recipe: str) -> tuple[SubPolicy, ...]:
    """Return sub-policies of three random steps, half of them up to magnitude 45, half to 20."""
    groups = tuple(Group(SUBPOLICIES // 2, 3, magnitude) for magnitude in (45, 20))
    pool = sample_pool(replace(get_recipe(recipe), groups=groups), seed=0)
    return tuple(sub for sub in pool if len(sub.all_steps) > 3)


def relook_views(recipe: str, side: int, count: int) -> None:
    """Make one view of each image and sub-policy."""
    images, indices = torch.from_numpy(photos(side, count)), np.arange(count)
    for view, sub in enumerate(subpolicies(recipe)):
        apply_subpolicy(sub, images, indices, 0, view)


def torch_views(recipe: str, side: int, count: int) -> None:
    """Make the same views with the torch kernels, which other devices use."""
    with patch("relook.policy.views.apply_steps", apply_kernels):
        relook_views(recipe, side, count)


def pillow_share(recipe: str, side: int, count: int, worker: int) -> None:
    """Make one worker's share of the same views with Pillow."""
    mine = np.arange(worker, count, CORES)
    images = np.ascontiguousarray(photos(side, count)[mine].transpose(0, 2, 3, 1))
    for view, sub in enumerate(subpolicies(recipe)):
        draws = draws_for_batch(sub.all_steps, mine, 0, view)
        steps = zip(sub.all_steps, draws, strict=True)
        pillow_views(images, [(step.transform, step.value, drawn) for step, drawn in steps])


@lru_cache(maxsize=16)
def _peer(name: str, side: int, count: int) -> tuple[Mapping[str, Callable[[Any], Any]], Any]:
    peer = load(name, side)
    return peer.steps, peer.prepare(photos(side, count))


def peer_share(name: str, side: int, count: int, step: str) -> None:
    """Apply one step of a peer to some images."""
    steps, images = _peer(name, side, count)
    steps[step](images)


@lru_cache(maxsize=32)
def single(name: str) -> SubPolicy:
    """Return a step of relook's with fixed draws, made beforehand like a peer's."""
    draws = dict.fromkeys(TRANSFORMS[name].draws, 0.4)
    draws.update({draw: 1.0 for draw in ("sign", "edge", "flip") if draw in draws})
    magnitude = 4.0 if name == "crop_flip" else MAGNITUDE
    return SubPolicy((Step(name, magnitude, draws=draws),))


def one_step(name: str, side: int, count: int) -> None:
    """Apply the same step with relook."""
    images = torch.from_numpy(photos(side, count))
    apply_subpolicy(single(name), images, np.arange(count), 0, 0)


class Workers:
    """One process a core, each with one thread."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self.pools = [
            ProcessPoolExecutor(1, context, initializer=torch.set_num_threads, initargs=(1,))
            for _ in range(CORES)
        ]

    def run(self, function: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> float:
        """Call the function in every process, wait for all, and return their CPU seconds."""
        calls = [
            pool.submit(_cpu_seconds, function, *a)
            for pool, a in zip(self.pools, arguments, strict=True)
        ]
        return sum(call.result() for call in calls)


def _cpu_seconds(function: Callable[..., None], *arguments: Any) -> float:
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def best_times(contest: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Spent]:
    """Return each contestant's least seconds; the first round only warms up.

    A call may return the CPU seconds of other processes, which count with this one's.
    """
    best = {name: Spent(float("inf"), float("inf")) for name in contest}
    for turn in range(rounds + 1):
        for name, call in contest.items():
            time.sleep(_PAUSE)
            wall, cpu = time.perf_counter(), time.process_time()
            elsewhere = call() or 0.0
            cpu, wall = time.process_time() - cpu + elsewhere, time.perf_counter() - wall
            if turn:
                best[name] = Spent(min(best[name].wall, wall), min(best[name].cpu, cpu))
    return best


def whole_subpolicies(workers: Workers, recipe: str, side: int, count: int, rounds: int) -> None:
    """Print images/s for three-step sub-policies with their start and finish."""
    few = max(4, count // 32)
    contest: dict[str, tuple[int, Callable[[], Any]]] = {
        "relook": (count, lambda: relook_views(recipe, side, count)),
        "relook, torch kernels": (few, lambda: torch_views(recipe, side, few)),
        f"Pillow, {CORES} processes": (
            count,
            lambda: workers.run(pillow_share, [(recipe, side, count, w) for w in range(CORES)]),
        ),
    }
    times = best_times({name: call for name, (_, call) in contest.items()}, rounds)
    views = len(subpolicies(recipe))
    print(f"\n{recipe}: {views} three-step sub-policies, {side}×{side}, {CORES} cores")
    each = {
        name: Spent(t.wall / views / contest[name][0], t.cpu / views / contest[name][0])
        for name, t in times.items()
    }
    for name, spent in each.items():
        print(
            f"  {name:24s} {1 / spent.wall:9,.0f} images/s, {spent.cpu * 1e6:8.1f} µs of CPU an "
            f"image; relook is {spent.wall / each['relook'].wall:5.1f} × faster, "
            f"{spent.cpu / each['relook'].cpu:5.1f} × by CPU time"
        )


def peers_on_their_steps(workers: Workers, side: int, count: int, rounds: int) -> None:
    """Print how long each peer needs for its own steps, and relook for the same ones."""
    print(f"\nsingle steps at magnitude {MAGNITUDE:g}, {side}×{side}, {CORES} cores")
    for name in PEERS:
        try:
            peer = load(name, side)
        except ImportError as error:
            print(f"  {name:24s} skipped: {error}")
            continue
        times = {
            step: best_times(_duel(workers, name, peer, step, side, count), rounds)
            for step in peer.steps
        }
        ratios = [(t["peer"].cpu / t["relook"].cpu, step) for step, t in times.items()]
        mean = {
            who: Spent(
                *(sum(t[who][kind] for t in times.values()) / len(times) / count for kind in (0, 1))
            )
            for who in ("peer", "relook")
        }
        least, most = min(ratios), max(ratios)
        print(
            f"  {name:24s} {len(ratios)} steps, {mean['peer'].cpu * 1e6:7.1f} µs of CPU an image "
            f"and step, relook {mean['relook'].cpu * 1e6:6.1f}: "
            f"{mean['peer'].wall / mean['relook'].wall:5.1f} × faster, "
            f"{mean['peer'].cpu / mean['relook'].cpu:5.1f} × by CPU time "
            f"(from {least[0]:.1f} × for {least[1]} to {most[0]:.0f} × for {most[1]})"
        )


def _duel(
    workers: Workers, name: str, peer: Peer, step: str, side: int, count: int
) -> dict[str, Callable[[], Any]]:
    shares = [(name, side, -(-count // CORES), step)] * CORES

    def theirs() -> float | None:
        if peer.in_processes:
            return workers.run(peer_share, shares)
        peer_share(name, side, count, step)
        return None

    return {"peer": theirs, "relook": lambda: one_step(step, side, count)}


def plots(workers: Workers, folder: Path, rounds: int) -> None:
    """Draw the cost of a view against the side of the image, and speed against threads."""
    import matplotlib.pyplot as plt

    sides = (16, 32, 64, 96, 128, 224)
    lines: dict[str, list[float]] = {f"Pillow, {CORES} processes": []}
    for side in sides:
        count = min(256, max(8, 2**18 // side**2))
        contest: dict[str, Callable[[], Any]] = {
            f"Pillow, {CORES} processes": partial(
                workers.run, pillow_share, [("cifar", side, count, w) for w in range(CORES)]
            )
        }
        for threads in range(1, CORES + 1):
            contest[f"relook, {threads} thread{'s' * (threads > 1)}"] = _threaded(
                threads, side, count
            )
        for name, seconds in best_times(contest, rounds).items():
            lines.setdefault(name, []).append(seconds.wall / SUBPOLICIES / count * 1e6)
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, costs in lines.items():
        axes.loglog(sides, costs, marker="o", label=name)
    axes.set(xlabel="side of the image, pixels", ylabel="µs a view, three steps and finish")
    axes.set_xticks(sides, [str(side) for side in sides], minor=False)
    axes.minorticks_off()
    axes.legend()
    figure.savefig(folder / "views-size.svg")
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    counts = range(1, 2 * CORES + 1)
    for side in (32, 224):
        count = 256 if side == 32 else 32
        contest = {str(threads): _threaded(threads, side, count) for threads in counts}
        times = list(best_times(contest, rounds).values())
        axes.plot(
            counts, [times[0].wall / t.wall for t in times], marker="o", label=f"{side}×{side}"
        )
    axes.axvline(CORES, color="grey", linewidth=0.8, linestyle=":")
    axes.set(xlabel=f"threads (the machine has {CORES} cores)", ylabel="speed, one thread = 1")
    axes.set_xticks(list(counts))
    axes.legend()
    figure.savefig(folder / "views-threads.svg")
    torch.set_num_threads(CORES)


def _threaded(threads: int, side: int, count: int) -> Callable[[], None]:
    def call() -> None:
        torch.set_num_threads(threads)
        relook_views("cifar", side, count)

    return call


def main() -> None:
    """Run all contests and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plots", type=Path, help="folder for the figures")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # peers warn about one another
    torch.set_num_threads(CORES)
    workers = Workers()
    print(f"load at the start: {os.getloadavg()[0]:.1f} on {CORES} cores")
    for recipe, side, count in SETTINGS:
        whole_subpolicies(workers, recipe, side, count, options.rounds)
        peers_on_their_steps(workers, side, count, options.rounds)
    print(f"\nload at the end: {os.getloadavg()[0]:.1f}")
    if options.plots is not None:
        options.plots.mkdir(parents=True, exist_ok=True)
        plots(workers, options.plots, options.rounds)


if __name__ == "__main__":
    main()
