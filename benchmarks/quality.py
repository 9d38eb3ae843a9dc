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
from relook.numerics.calibration import calibrated_log_likelihood, temper
from relook.numerics.metrics import accuracy, ece
from relook.numerics.splits import stratified_split
from relook.numerics.view_temperature import VIEW_TEMPERATURES
from relook.policy import SubPolicy
from relook.policy.pool import conservative_pool, sample_pool
from relook.policy.recipes import RECIPES, Group
from relook.predictions.passes import View, predict_views
from relook.selection import greedy_search
from relook.studies.corruptions import corrupt_images

BUDGETS = (1, 2, 3, 5, 10, 20)
METRICS = ("cll", "accuracy", "ece")
_SEEDS = 10  # of random crops and flips
_TRIED = 3  # of them to learn a view temperature with
_LENGTH = 20
_LEAST = 1e-35
_CORRUPTIONS = ("gaussian_noise", "defocus_blur", "fog", "contrast", "jpeg_compression")
_SEVERITY = 3
_FEW_CROPS = 40  # to draw from on corrupted images

RANDOM = "random crop-flip"
RANDOM_LEARNED = "random crop-flip, own view temperature"
DEFAULT = "conservative"
USUAL = "conservative, usual average"

Probabilities = NDArray[np.float32]
Labels = NDArray[np.int64]
Scores = dict[int, dict[str, float]]
"""By budget: calibrated log-likelihood, accuracy, and calibrated ECE."""


@dataclass(frozen=True)
class Candidates:
    """All views that are predicted, and which of them serve whom."""

    views: tuple[SubPolicy, ...]
    defaults: range
    pool: range
    paper: range
    crops: range


def candidates(size: int, crops: int, paper_size: int = 0) -> Candidates:
    """Return a pool of `size`, so many random crops with flips behind it, and the paper's pool."""
    pool = conservative_pool("cifar", size)
    paper = sample_pool("cifar", paper_size, draws="fresh") if paper_size else ()
    recipe = replace(RECIPES["cifar"], groups=(Group(crops, 0, 0),))
    random = sample_pool(recipe, crops, seed=1, plain=False)
    return Candidates(
        views=(*pool.candidates, *random, *paper),
        defaults=range(pool.defaults),
        pool=range(size),
        crops=range(size, size + crops),
        paper=range(size + crops, size + crops + paper_size),
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
    module, mean, std, dataset = load_networks(data).load(network)
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


def load_networks(data: Path) -> Any:
    """Import DIR's networks.py."""
    spec = importlib.util.spec_from_file_location("networks", data / "networks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def averaged(log_probs: NDArray[np.float32], view_temperature: float) -> NDArray[np.float64]:
    """Return views' probabilities as they are averaged."""
    return np.exp(temper(log_probs, view_temperature))


def score(probabilities: NDArray[Any], labels: Labels) -> dict[str, float]:
    """Return the metrics of `[image, class]`."""
    log_probs = np.log(np.maximum(probabilities, _LEAST, dtype=np.float64))
    cll, temperature = calibrated_log_likelihood(log_probs, labels)
    calibrated = temper(log_probs, temperature)
    return {
        "cll": cll,
        "accuracy": accuracy(log_probs, labels),
        "ece": ece(calibrated, labels),
    }


def score_policy(picks: Sequence[int], views: NDArray[Any], labels: Labels) -> Scores:
    """Return the scores at each budget: the longest beginning with so many distinct views."""
    scores = {}
    for budget in BUDGETS:
        length = max(n for n in range(1, len(picks) + 1) if len(set(picks[:n])) <= budget)
        scores[budget] = score(views[list(picks[:length])].mean(axis=0), labels)
    return scores


def random_average(crops: NDArray[Any], budget: int, seed: int) -> NDArray[Any]:
    """Return the average of as many crops with flips, drawn for each image from `crops`."""
    images = crops.shape[1]
    which = np.random.default_rng(seed).integers(len(crops), size=(budget, images))
    return np.asarray(crops[which, np.arange(images)].mean(axis=0))


def score_random(crops: NDArray[Any], labels: Labels, budget: int, seeds: int) -> dict[str, float]:
    """Return the mean scores of several draws of random crops."""
    drawn = [score(random_average(crops, budget, seed), labels) for seed in range(seeds)]
    return {name: float(np.mean([one[name] for one in drawn])) for name in METRICS}


def measure_random(
    crops: NDArray[np.float32], labels: Labels, search: NDArray[np.int64], rest: NDArray[np.int64]
) -> tuple[Scores, Scores]:
    """Score random crops on the rest, averaged as usual and at their own view temperature.

    That is learned on the images to search on, for each budget.
    """
    by_kappa = {kappa: averaged(crops, kappa) for kappa in VIEW_TEMPERATURES}
    usual, learned = {}, {}
    for budget in BUDGETS:
        best = max(
            VIEW_TEMPERATURES,
            key=lambda kappa: score_random(
                by_kappa[kappa][:, search], labels[search], budget, _TRIED
            )["cll"],
        )
        usual[budget], learned[budget] = (
            score_random(by_kappa[kappa][:, rest], labels[rest], budget, _SEEDS)
            for kappa in (1.0, best)
        )
    return usual, learned


def measure(
    log_probs: NDArray[np.float32], labels: Labels, pools: Candidates, sizes: list[int], splits: int
) -> dict[str, list[Scores]]:
    """Return the held-out scores of each strategy and size of the search set, one per split."""
    found: dict[str, list[Scores]] = {}

    def add(name: str, scores: Scores) -> None:
        found.setdefault(name, []).append(scores)

    for split in range(splits):
        order = np.random.default_rng(split).permutation(len(labels))
        rest = order[max(sizes) :]
        crops = log_probs[pools.crops.start : pools.crops.stop]
        usual, learned = measure_random(crops, labels, order[: min(sizes)], rest)
        add(RANDOM, usual)
        add(RANDOM_LEARNED, learned)
        for size in sizes:
            for name, own, options in _strategies(pools):
                part = log_probs[own.start : own.stop]
                images = order[:size]
                search = greedy_search(part[:, images], labels[images], _LENGTH, **options)
                views = averaged(part[:, rest], search.view_temperature)
                add(f"{name}, {size} images", score_policy(search.picks, views, labels[rest]))
                if name == DEFAULT:
                    alone = score_policy(range(_LENGTH), views, labels[rest])
                    add(f"quasi-random views, {size} images", alone)
    return found


def _strategies(pools: Candidates) -> list[tuple[str, range, dict[str, Any]]]:
    strategies: list[tuple[str, range, dict[str, Any]]] = [
        (DEFAULT, pools.pool, {"defaults": pools.defaults}),
        (USUAL, pools.pool, {"defaults": pools.defaults, "view_temperature": 1.0}),
        ("greedy", pools.pool, {}),
    ]
    return strategies + ([("paper", pools.paper, {})] if pools.paper else [])


def measure_corrupted(
    source: Source,
    log_probs: NDArray[np.float32],
    pools: Candidates,
    size: int,
    images: int,
    out: Path,
) -> dict[str, list[Scores]]:
    """Return the scores of random crops and of conservative policies, one per corruption."""
    order = np.random.default_rng(0).permutation(len(source.labels))
    part = log_probs[pools.pool.start : pools.pool.stop, order[:size]]
    policies = {
        name: greedy_search(part, source.labels[order[:size]], _LENGTH, **options)
        for name, _, options in _strategies(pools)
        if name in (DEFAULT, USUAL)
    }
    chosen = sorted({pick for one in policies.values() for pick in one.picks})
    views = [pools.views[view] for view in (*chosen, *pools.crops[:_FEW_CROPS])]
    rest = order[size : size + images]
    found: dict[str, list[Scores]] = {}
    for corruption in _CORRUPTIONS:
        pixels = corrupt_images(source.images[rest], corruption, _SEVERITY, indices=rest)
        worse = replace(source, images=pixels, labels=source.labels[rest])
        predicted = predictions(worse, views, out / f"{source.name}-{corruption}.zarr")
        crops = averaged(predicted[len(chosen) :], 1.0)
        random = {b: score_random(crops, worse.labels, b, _SEEDS) for b in BUDGETS}
        found.setdefault(RANDOM, []).append(random)
        for name, policy in policies.items():
            own = averaged(predicted, policy.view_temperature)
            picks = [chosen.index(pick) for pick in policy.picks]
            scores = score_policy(picks, own, worse.labels)
            found.setdefault(f"{name}, {size} images", []).append(scores)
    return found


def show(found: dict[str, list[Scores]]) -> None:
    """Print means by budget, and the gain in cLL over random crop-flip with its standard error."""
    base = found[RANDOM]
    for metric in METRICS:
        print(f"\n| held-out {metric} at | " + " | ".join(f"{one}" for one in BUDGETS) + " |")
        print("| --- |" + " --- |" * len(BUDGETS))
        for name, scores in found.items():
            cells = []
            for budget in BUDGETS:
                own, other = ([one[budget][metric] for one in each] for each in (scores, base))
                gains = np.subtract(own, other)
                error = np.std(gains, ddof=1) / np.sqrt(len(gains))
                gain = "" if scores is base else f" ({np.mean(gains):+.4f} ± {error:.4f})"
                cells.append(f"{np.mean(own):.4f}{gain}")
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
    options.add_argument("--paper", type=int, default=0, help="candidates of the paper's pool")
    options.add_argument("--corrupted", type=int, default=0, help="images to corrupt")
    chosen = options.parse_args()
    pools = candidates(chosen.pool, chosen.crops, chosen.paper)
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
