"""How many times faster the search is than the plain step, side by side in one run.

    python benchmarks/selection.py            the two CIFAR sizes, a small one of ImageNet's kind
    python benchmarks/selection.py --full     ImageNet's size too: 45 GB on disk, 16 GB of memory

The plain step is timed on a few candidates, one process per core, and scaled to the whole search.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from generator import make_pool, write_half  # type: ignore[import-not-found]
from plain_selection import PlainTime, time_plain  # type: ignore[import-not-found]
from relook.foundation.threads import available_cores
from relook.io.run_directory import RunDirectory
from relook.predictions.external import load_labels, open_predictions
from relook.selection import SearchResult, greedy_search
from relook.selection.greedy import COMPACT_FROM, extended_mean, search_with
from relook.selection.kernels.compact import CompactScorer
from relook.selection.kernels.scorer import CompiledScorer

FULL_SIZE = (900, 25_000, 1_000, 20)
QUICK_SIZES = ((1101, 5_000, 10, 100), (1101, 5_000, 100, 100), (100, 2_000, 1_000, 20))
_TIMED = 4  # candidates whose plain step is timed


@dataclass(frozen=True)
class Timing:
    """A whole search: seconds by the clock and of the processor, and what it found."""

    clock: float
    processor: float
    result: SearchResult


def timed_search(log_probs: NDArray[np.floating], labels: NDArray[np.int64], steps: int) -> Timing:
    """Search with all cores; the kernels have been compiled before."""
    clock, processor = time.perf_counter(), time.process_time()
    result = greedy_search(log_probs, labels, steps)
    return Timing(time.perf_counter() - clock, time.process_time() - processor, result)


def compile_kernels() -> None:
    """Compile what the searches use; a second run finds it compiled."""
    for classes in (10, COMPACT_FROM):
        pool = make_pool(4, 130, classes)
        log_probs = pool.log_probs(slice(None), slice(None))
        for kind in (np.float32, np.float16):
            predictions = log_probs.astype(kind)
            scorer = CompactScorer if classes >= COMPACT_FROM else CompiledScorer
            with scorer(predictions, pool.labels) as opened:
                search_with(opened, predictions, 3)


def worst_regret(
    log_probs: NDArray[np.floating], labels: NDArray[np.int64], result: SearchResult
) -> float:
    """Return the most that any step's pick falls short of that step's exact best, in cLL."""
    mean, temperature, worst = np.zeros(log_probs.shape[1:]), 1.0, 0.0
    with CompiledScorer(log_probs, labels) as scorer:
        for step, pick in enumerate(result.picks, start=1):
            best = scorer.best(mean, step, temperature)
            worst = max(worst, best.score - result.scores[step - 1])
            mean = extended_mean(mean, log_probs[pick], step)
            temperature = result.temperatures[step - 1]
    return worst


def report(size: tuple[int, int, int, int], plain: PlainTime, timing: Timing) -> None:
    """Print one line: the ratio by the clock, and of processor time."""
    candidates, images, classes, steps = size
    cores = available_cores()
    whole = candidates * steps
    print(
        f"{candidates:5d} × {images:6d} × {classes:5d}, {steps:3d} steps: "
        f"search {timing.clock:7.1f} s ({timing.processor:.1f} s of processor), "
        f"plain {plain.clock:.3f} s per candidate ({plain.processor:.3f}), "
        f"{plain.clock * whole / cores / timing.clock:5.0f} times faster by the clock, "
        f"{plain.processor * whole / timing.processor:5.0f} by processor time; "
        f"load {os.getloadavg()[0]:.1f}, peak memory so far "
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB",
        flush=True,
    )


def measure(size: tuple[int, int, int, int]) -> None:
    """Measure one size in memory."""
    candidates, images, classes, steps = size
    pool = make_pool(candidates, images, classes)
    log_probs: NDArray[np.floating] = pool.log_probs(slice(None), slice(None))
    plain = time_plain(
        pool.log_probs(slice(0, _TIMED), slice(None)), pool.labels, _TIMED, available_cores()
    )
    if classes >= COMPACT_FROM:
        log_probs = log_probs.astype(np.float16)
    timing = timed_search(log_probs, pool.labels, steps)
    report(size, plain, timing)
    if classes >= COMPACT_FROM:
        regret = worst_regret(log_probs, pool.labels, timing.result)
        print(f"      largest regret of a step against the exact search: {regret:.1e} cLL")


def measure_on_disk(size: tuple[int, int, int, int], path: Path) -> None:
    """Measure one size as a float16 file, made if it is not there."""
    candidates, images, classes, steps = size
    pool = make_pool(candidates, images, classes)
    if not path.exists():
        write_half(pool, path)
    log_probs = np.load(path, mmap_mode="r", allow_pickle=False)
    few = pool.log_probs(slice(0, _TIMED), slice(None))
    plain = time_plain(few, pool.labels, 2, available_cores())
    del few
    report(size, plain, timed_search(log_probs, pool.labels, steps))


def real_predictions(
    path: Path, labels: Path | None
) -> tuple[NDArray[np.floating], NDArray[np.int64]]:
    """Return predictions and labels: an `.npz` file has both; `.npy`, a store or a run, one."""
    run = RunDirectory(path).predictions
    predictions = open_predictions(run if run.exists() else path, "log_probs")
    log_probs = predictions.map() if predictions.map else predictions.load()
    return log_probs, load_labels(labels or path)


def measure_real(path: Path, labels_path: Path | None, steps: int) -> None:
    """Measure on predictions of a real network."""
    log_probs, labels = real_predictions(path, labels_path)
    few = np.array(log_probs[:_TIMED], dtype=np.float32)
    plain = time_plain(few, labels, _TIMED, available_cores())
    candidates, images, classes = log_probs.shape
    report((candidates, images, classes, steps), plain, timed_search(log_probs, labels, steps))


def measure_autogluon(size: tuple[int, int, int, int]) -> None:
    """Time AutoGluon's EnsembleSelection, by log-loss without a temperature, on the same matrix."""
    from autogluon.core.metrics import log_loss  # type: ignore[import-not-found]
    from autogluon.core.models.greedy_ensemble.ensemble_selection import (  # type: ignore[import-not-found]
        EnsembleSelection,
    )

    candidates, images, classes, steps = size
    pool = make_pool(candidates, images, classes)
    log_probs = pool.log_probs(slice(None), slice(None))
    timing = timed_search(log_probs, pool.labels, steps)
    predictions = list(np.exp(log_probs))
    clock, processor = time.perf_counter(), time.process_time()
    EnsembleSelection(steps, problem_type="multiclass", metric=log_loss).fit(
        predictions, pool.labels
    )
    theirs, used = time.perf_counter() - clock, time.process_time() - processor
    print(
        f"{candidates} × {images} × {classes}, {steps} steps: search {timing.clock:.1f} s "
        f"({timing.processor:.1f} s of processor), AutoGluon {theirs:.1f} s ({used:.1f}), "
        f"{theirs / timing.clock:.0f} times faster by the clock, "
        f"{used / timing.processor:.0f} by processor time; load {os.getloadavg()[0]:.1f}"
    )


def draw_growth(path: Path) -> None:
    """Draw how the search's processor time grows with each of the four sizes."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    usual = {"candidates": 300, "images": 4_000, "classes": 20, "steps": 40}
    figure, axes = plt.subplots(1, 4, figsize=(11, 3), sharey=True, layout="constrained")
    for axis, name in zip(axes, usual, strict=True):
        values = [usual[name] * factor // 4 for factor in (1, 2, 4, 8)]
        seconds = []
        for value in values:
            size = {**usual, name: value}
            pool = make_pool(size["candidates"], size["images"], size["classes"])
            log_probs = pool.log_probs(slice(None), slice(None))
            seconds.append(timed_search(log_probs, pool.labels, size["steps"]).processor)
        print(name, dict(zip(values, np.round(seconds, 2), strict=True)), flush=True)
        axis.loglog(values, seconds, marker="o")
        axis.loglog(values, [seconds[0] * v / values[0] for v in values], ":", color="0.5")
        axis.set_xlabel(name)
        axis.set_xticks(values, [f"{value:,}" for value in values])
        axis.minorticks_off()
    ticks = [0.25, 0.5, 1, 2, 4, 8]
    axes[0].set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes[0].minorticks_off()
    axes[0].set_ylabel("seconds of processor time")
    figure.savefig(path)


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--size", nargs=4, type=int, metavar=("K", "N", "C", "STEPS"))
    options.add_argument("--full", action="store_true", help="ImageNet's size too, on disk")
    options.add_argument("--file", type=Path, help="where the large float16 file is or goes")
    options.add_argument("--real", type=Path, help="log-probabilities: .npy, .npz, a store, a run")
    options.add_argument("--labels", type=Path, help="their labels, if not in the same .npz file")
    options.add_argument(
        "--autogluon", action="store_true", help="compare with AutoGluon, if installed"
    )
    options.add_argument("--growth", type=Path, help="draw how the time grows, to this file")
    chosen = options.parse_args()
    compile_kernels()
    if chosen.growth:
        draw_growth(chosen.growth)
        return
    if chosen.autogluon:
        measure_autogluon(tuple(chosen.size) if chosen.size else (200, 5_000, 10, 20))
        return
    if chosen.real:
        measure_real(chosen.real, chosen.labels, 100)
        return
    if chosen.file and chosen.size:
        measure_on_disk(tuple(chosen.size), chosen.file)
        return
    for size in [tuple(chosen.size)] if chosen.size else QUICK_SIZES:
        measure(size)
    if chosen.full:
        with TemporaryDirectory() as directory:
            measure_on_disk(FULL_SIZE, chosen.file or Path(directory) / "predictions.npy")


if __name__ == "__main__":
    main()
