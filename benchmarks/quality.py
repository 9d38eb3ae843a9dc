"""How well the policies of each strategy hold on other images, beside random crops and flips.

    python benchmarks/quality.py --data DIR --network akamaster/resnet20/cifar10 --out quality

DIR has `networks.py` with `load(name) -> (module, mean, std, dataset)`, which is imported, and
`DATASET_test.npz` with `images` [n, 32, 32, 3] and `labels`. One pool is predicted on all images,
once and resumably; then each split searches on a part of them and is scored on the rest.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from relook.io.files import write_json_atomic
from relook.models import Predictor, as_predictor
from relook.models.accelerate import accelerate
from relook.numerics.calibration import calibrated_log_likelihood
from relook.numerics.splits import stratified_split
from relook.policy import SubPolicy
from relook.policy.pool import conservative_pool, sample_pool
from relook.policy.recipes import RECIPES, Group
from relook.predictions.passes import View, predict_views
from relook.selection import greedy_search
from relook.studies.corruptions import corrupt_images

BUDGETS = (1, 2, 3, 5, 10, 20)
_SEEDS = 10  # of random crops and flips
_LENGTH = 20
_LEAST = 1e-35
_CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
_SEVERITY = 3
_FEW_CROPS = 40  # to draw from on corrupted images

Probabilities = NDArray[np.float32]
Labels = NDArray[np.int64]
Scores = dict[int, float]


@dataclass(frozen=True)
class Candidates:
    """All views that are predicted, and which of them serve whom."""

    views: tuple[SubPolicy, ...]
    spread: range
    steady: range
    paper: range
    crops: range


def candidates(size: int, crops: int) -> Candidates:
    """Return the pools of `size`, and so many random crops with flips behind the first."""
    pool = conservative_pool("cifar", size)
    paper = sample_pool("cifar", size, draws="fresh")
    recipe = replace(RECIPES["cifar"], groups=(Group(crops, 0, 0),))
    random = sample_pool(recipe, crops, seed=1, plain=False)
    return Candidates(
        views=(*pool.candidates, *random, *paper),
        spread=range(pool.defaults),
        steady=range(size),
        crops=range(size, size + crops),
        paper=range(size + crops, 2 * size + crops),
    )


@dataclass(frozen=True)
class Source:
    """A network and the images that it is measured on."""

    name: str
    predictor: Predictor
    images: Tensor
    labels: Labels


def read_source(data: Path, network: str, images: int) -> Source:
    """Return the network on ONNX Runtime and so many test images, of each class as many."""
    module, mean, std, dataset = _networks(data).load(network)
    with np.load(data / f"{dataset}_test.npz") as arrays:
        pixels, labels = arrays["images"], arrays["labels"]
    _, chosen = stratified_split(labels, images / len(labels), seed=0)
    tensor = torch.from_numpy(pixels[chosen]).permute(0, 3, 1, 2).contiguous()
    model = accelerate(as_predictor(module, mean=mean, std=std), tensor[:256], mode="onnx")
    return Source(network.replace("/", "-"), model.predictor, tensor, labels[chosen])


def predictions(source: Source, pool: Sequence[SubPolicy], store: Path) -> NDArray[np.float32]:
    """Return log-probabilities `[candidate, image, class]`; kept in `store`."""
    views = [View(sub, index) for index, sub in enumerate(pool)]
    return predict_views(source.predictor, source.images, views, seed=0, store_path=store)


def _networks(data: Path) -> Any:
    spec = importlib.util.spec_from_file_location("networks", data / "networks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def score(probabilities: Probabilities, labels: Labels) -> float:
    """Return the calibrated log-likelihood of `[image, class]`."""
    log_probs = np.log(np.maximum(probabilities, _LEAST, dtype=np.float64))
    return calibrated_log_likelihood(log_probs, labels)[0]


def score_policy(picks: tuple[int, ...], pool: Probabilities, labels: Labels) -> Scores:
    """Return the score at each budget: the longest beginning with so many distinct views."""
    scores = {}
    for budget in BUDGETS:
        length = max(n for n in range(1, len(picks) + 1) if len(set(picks[:n])) <= budget)
        scores[budget] = score(pool[list(picks[:length])].mean(axis=0), labels)
    return scores


def score_random(crops: Probabilities, labels: Labels) -> Scores:
    """Return the mean score of as many crops with flips, drawn for each image from `crops`."""
    rows = np.arange(len(labels))
    scores = {}
    for budget in BUDGETS:
        drawn = [
            np.random.default_rng(seed).integers(len(crops), size=(budget, len(labels)))
            for seed in range(_SEEDS)
        ]
        scores[budget] = float(
            np.mean([score(crops[which, rows].mean(axis=0), labels) for which in drawn])
        )
    return scores


def measure(
    log_probs: NDArray[np.float32], labels: Labels, pools: Candidates, sizes: list[int], splits: int
) -> dict[str, list[Scores]]:
    """Return the held-out scores of each strategy and size of the search set, one a split."""
    found: dict[str, list[Scores]] = {}
    strategies = (
        ("paper", pools.paper, range(0)),
        ("greedy", pools.steady, range(0)),
        ("steady", pools.steady, pools.spread),
    )
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(labels))
        rest = order[max(sizes) :]
        views, truth = np.exp(log_probs[:, rest]), labels[rest]
        random = score_random(views[pools.crops], truth)
        found.setdefault("random crop-flip", []).append(random)
        alone = score_policy(tuple(range(_LENGTH)), views[pools.spread], truth)
        found.setdefault("spread views, nothing learned", []).append(alone)
        for size in sizes:
            images = order[:size]
            for name, pool, defaults in strategies:
                part = log_probs[pool.start : pool.stop, images]
                search = greedy_search(part, labels[images], _LENGTH, defaults=defaults)
                scores = score_policy(search.picks, views[pool], truth)
                found.setdefault(f"{name}, {size} images", []).append(scores)
    return found


def measure_corrupted(
    source: Source,
    log_probs: NDArray[np.float32],
    pools: Candidates,
    size: int,
    images: int,
    out: Path,
) -> dict[str, list[Scores]]:
    """Return the scores of random crops and of the steady policy, one a corruption."""
    order = np.random.default_rng(0).permutation(len(source.labels))
    part = log_probs[pools.steady.start : pools.steady.stop, order[:size]]
    policy = greedy_search(part, source.labels[order[:size]], _LENGTH, defaults=pools.spread)
    chosen = sorted(set(policy.picks))
    picks = tuple(chosen.index(pick) for pick in policy.picks)
    views = [pools.views[view] for view in (*chosen, *pools.crops[:_FEW_CROPS])]
    rest = order[size : size + images]
    found: dict[str, list[Scores]] = {"random crop-flip": [], f"steady, {size} images": []}
    for corruption in _CORRUPTIONS:
        pixels = corrupt_images(source.images[rest], corruption, _SEVERITY, indices=rest)
        worse = replace(source, images=pixels, labels=source.labels[rest])
        probabilities = np.exp(predictions(worse, views, out / f"{source.name}-{corruption}.zarr"))
        random = score_random(probabilities[len(chosen) :], worse.labels)
        scores = score_policy(picks, probabilities, worse.labels)
        for one, name in zip((random, scores), found, strict=True):
            found[name].append(one)
    return found


def show(found: dict[str, list[Scores]]) -> None:
    """Print mean cLL by budget, and the gain over random crop-flip with its standard error."""
    print("| held-out cLL at | " + " | ".join(f"{budget}" for budget in BUDGETS) + " |")
    print("| --- |" + " --- |" * len(BUDGETS))
    base = found["random crop-flip"]
    for name, scores in found.items():
        cells = []
        for budget in BUDGETS:
            gains = [each[budget] - other[budget] for each, other in zip(scores, base, strict=True)]
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            gain = "" if scores is base else f" ({np.mean(gains):+.4f} ± {error:.4f})"
            cells.append(f"{np.mean([each[budget] for each in scores]):.4f}{gain}")
        print(f"| {name} | " + " | ".join(cells) + " |")


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--network", required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--images", type=int, default=2500)
    options.add_argument("--pool", type=int, default=150)
    options.add_argument("--crops", type=int, default=80, help="random ones to draw from")
    options.add_argument("--sizes", type=int, nargs="+", default=[500, 1000])
    options.add_argument("--splits", type=int, default=5)
    options.add_argument("--corrupted", type=int, default=0, help="images to corrupt")
    chosen = options.parse_args()
    pools = candidates(chosen.pool, chosen.crops)
    source = read_source(chosen.data, chosen.network, chosen.images)
    name = f"{source.name}-{chosen.images}"
    log_probs = predictions(source, pools.views, chosen.out / f"{name}.zarr")
    found = measure(log_probs, source.labels, pools, chosen.sizes, chosen.splits)
    print(
        f"{chosen.network}: {chosen.images} images, a pool of {chosen.pool}, {chosen.splits} splits"
    )
    show(found)
    write_json_atomic(chosen.out / f"{name}.json", json.loads(json.dumps(found)))
    if chosen.corrupted:
        size = max(chosen.sizes)
        worse = measure_corrupted(source, log_probs, pools, size, chosen.corrupted, chosen.out)
        print(f"\n{chosen.network}: mean over {', '.join(_CORRUPTIONS)} at severity {_SEVERITY}")
        show(worse)
        write_json_atomic(chosen.out / f"{name}-corrupted.json", json.loads(json.dumps(worse)))


if __name__ == "__main__":
    main()
