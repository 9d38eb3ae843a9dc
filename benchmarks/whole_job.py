"""The whole job, naively and with relook: the same network, the same images, a policy of 20 views.

    python benchmarks/whole_job.py DIR [--network NAME] [--pool-size 16] [--time 2m]

DIR has `networks.py` and `DATASET_test.npz`, as for `quality.py`. Half of the images are searched
on, the others are for the proof. The naive job is the paper's: 1101 sub-policies, each made by
Pillow in a DataLoader and predicted by torch as it comes; 20 greedy steps, with Nelder-Mead for
each candidate; 41 views of the other half. It would take hours, so its parts are timed on a sample
before and after relook's run, and scaled. relook's is `relook.search`, timed as a whole, without
the start of Python.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.plain_selection import time_plain
from benchmarks.pool import naive
from benchmarks.quality import load_networks

import relook
from relook.foundation.threads import available_cores
from relook.models import TorchPredictor
from relook.policy.pool import sample_pool
from relook.predictions.passes import View, predict_views

_STEPS, _PROOF = 20, 41  # entries of the policy; views for the proof: plain, crops and its own
_SAMPLED_IMAGES, _SAMPLED_VIEWS, _TIMED = 256, 16, 2


class Seconds(NamedTuple):
    """By the clock, and of the processor."""

    clock: float
    processor: float


def now() -> Seconds:
    """Return the time."""
    return Seconds(time.perf_counter(), time.process_time())


def since(begin: Seconds) -> Seconds:
    """Return the time that has passed."""
    return Seconds(*(end - start for end, start in zip(now(), begin, strict=True)))


def naive_pass(predictor: TorchPredictor, images: Tensor) -> Seconds:
    """Return what one view of one image takes in the naive loop, by a sample of the pool."""
    pool = sample_pool("cifar", None, 0)
    sample = pool[:: -(-len(pool) // _SAMPLED_VIEWS)]
    run = naive(predictor, images[:_SAMPLED_IMAGES], sample)
    begin = now()
    passes = run()
    return Seconds(*(each / passes for each in since(begin)))


def naive_step(predictor: TorchPredictor, images: Tensor, labels: np.ndarray) -> Seconds:
    """Return what one candidate of one greedy step takes, if all cores work on them."""
    views = [View(sub, place) for place, sub in enumerate(sample_pool("cifar", 4, 0))]
    log_probs = predict_views(predictor, images, views, seed=0)
    each = time_plain(log_probs, labels, _TIMED, available_cores())
    return Seconds(each.clock / available_cores(), each.processor)


def main() -> None:
    """Print the times of both, their ratio, and relook's score on the other half."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("folder", type=Path, metavar="DIR")
    options.add_argument("--network", default="akamaster/resnet20/cifar10")
    options.add_argument("--pool-size", type=int)
    options.add_argument("--time")
    given = options.parse_args()
    module, mean, std, dataset = load_networks(given.folder).load(given.network)
    with np.load(given.folder / f"{dataset}_test.npz") as arrays:
        pixels, labels = arrays["images"], arrays["labels"].astype(np.int64)
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    predictor = TorchPredictor(module, mean=mean, std=std)
    half = len(images) // 2
    step = naive_step(predictor, images[:half], labels[:half])
    before = naive_pass(predictor, images)
    with TemporaryDirectory() as out:
        begin = now()
        found = relook.search(
            module,
            images,
            labels,
            mean=mean,
            std=std,
            out=Path(out) / "run",
            split="0.5:0.5",
            pool_size=given.pool_size,
            time=given.time,
        )
        took = since(begin)
    after = naive_pass(predictor, images)
    candidates = len(sample_pool("cifar", None, 0))
    passes = (candidates + _PROOF) * half
    whole = Seconds(
        *(
            passes * (one + other) / 2 + candidates * _STEPS * fit
            for one, other, fit in zip(before, after, step, strict=True)
        )
    )
    print(f"naive, scaled: {whole.clock:,.0f} s ({whole.processor:,.0f} s of the processor)")
    print(f"relook:        {took.clock:,.0f} s ({took.processor:,.0f} s of the processor)")
    print(f"views/s, naive: {1 / before.clock:,.0f} before, {1 / after.clock:,.0f} after")
    by_clock, by_processor = (one / other for one, other in zip(whole, took, strict=True))
    print(f"ratio: {by_clock:.0f} by the clock, {by_processor:.0f} by processor time")
    print(f"load {os.getloadavg()[0]:.1f}, {available_cores()} cores")
    print(found.comparison.verdict.sentence)


if __name__ == "__main__":
    main()
