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
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from relook.calibration import calibrated_log_likelihood
from relook.files import write_json_atomic
from relook.models import as_predictor
from relook.models.accelerate import accelerate
from relook.policy import SubPolicy
from relook.pool import sample_pool, steady_pool
from relook.predict import View, predict_views
from relook.recipes import RECIPES, Group
from relook.selection import greedy_search
from relook.splits import stratified_split

BUDGETS = (1, 2, 3, 5, 10, 20)
CROPS = 80
_SEEDS = 10  # of random crops and flips
_LENGTH = 20
_LEAST = 1e-35

Probabilities = NDArray[np.float32]
Labels = NDArray[np.int64]
Scores = dict[int, float]


def candidates(size: int) -> tuple[list[SubPolicy], int]:
    """Return a pool, `CROPS` random crops with flips behind it, and how many views are spread."""
    spread, rest = steady_pool("cifar", size)
    crops = replace(RECIPES["cifar"], groups=(Group(CROPS, 0, 0),))
    return [*spread, *rest, *sample_pool(crops, CROPS, seed=1, plain=False)], len(spread)


def predictions(
    data: Path, network: str, images: int, pool: list[SubPolicy], out: Path
) -> tuple[NDArray[np.float32], Labels]:
    """Return log-probabilities `[candidate, image, class]` and labels; kept in `out`."""
    module, mean, std, dataset = _networks(data).load(network)
    with np.load(data / f"{dataset}_test.npz") as arrays:
        pixels, labels = arrays["images"], arrays["labels"]
    _, chosen = stratified_split(labels, images / len(labels), seed=0)
    tensor = torch.from_numpy(pixels[chosen]).permute(0, 3, 1, 2).contiguous()
    model = accelerate(as_predictor(module, mean=mean, std=std), tensor[:256], mode="onnx")
    views = [View(sub, index) for index, sub in enumerate(pool)]
    store = out / f"{network.replace('/', '-')}-{images}.zarr"
    log_probs = predict_views(model.predictor, tensor, views, seed=0, store_path=store)
    return log_probs, labels[chosen]


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
    """Return the mean score of as many crops with flips, drawn for each image from `CROPS`."""
    rows = np.arange(len(labels))
    scores = {}
    for budget in BUDGETS:
        drawn = [
            np.random.default_rng(seed).integers(CROPS, size=(budget, len(labels)))
            for seed in range(_SEEDS)
        ]
        scores[budget] = float(
            np.mean([score(crops[which, rows].mean(axis=0), labels) for which in drawn])
        )
    return scores


def measure(
    log_probs: NDArray[np.float32], labels: Labels, spread: int, sizes: list[int], splits: int
) -> dict[str, list[Scores]]:
    """Return the held-out scores of each strategy and size of the search set, one a split."""
    found: dict[str, list[Scores]] = {}
    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(labels))
        rest = order[max(sizes) :]
        probabilities, truth = np.exp(log_probs[:, rest]), labels[rest]
        pool, crops = probabilities[:-CROPS], probabilities[-CROPS:]
        found.setdefault("random crop-flip", []).append(score_random(crops, truth))
        spread_alone = score_policy(tuple(range(_LENGTH)), pool, truth)
        found.setdefault("spread views, nothing learned", []).append(spread_alone)
        for size in sizes:
            part, known = log_probs[:-CROPS, order[:size]], labels[order[:size]]
            for name, defaults in (("greedy", range(0)), ("steady", range(spread))):
                search = greedy_search(part, known, _LENGTH, defaults=defaults)
                scores = score_policy(search.picks, pool, truth)
                found.setdefault(f"{name}, {size} images", []).append(scores)
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
    options.add_argument("--sizes", type=int, nargs="+", default=[500, 1000])
    options.add_argument("--splits", type=int, default=5)
    chosen = options.parse_args()
    pool, spread = candidates(chosen.pool)
    log_probs, labels = predictions(chosen.data, chosen.network, chosen.images, pool, chosen.out)
    found = measure(log_probs, labels, spread, chosen.sizes, chosen.splits)
    print(
        f"{chosen.network}: {len(labels)} images, a pool of {chosen.pool}, {chosen.splits} splits"
    )
    show(found)
    write_json_atomic(
        chosen.out / f"{chosen.network.replace('/', '-')}.json", json.loads(json.dumps(found))
    )


if __name__ == "__main__":
    main()
