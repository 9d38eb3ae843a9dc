"""A search with no options beside the options that a knowledgeable user would choose by hand.

    python benchmarks/defaults.py --data DIR --network akamaster/resnet20/cifar10 --out defaults

DIR is as for `quality.py`. Every alternative searches on the same images of each split, and is
scored on the same others. All views of all pools are predicted once, and resumably.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quality import (  # type: ignore[import-not-found]
    Labels,
    Source,
    averaged,
    read_source,
    score,
)
from relook.data import as_dataset
from relook.io.files import write_json_atomic
from relook.policy import Step
from relook.policy.recipes import RECIPES
from relook.policy_search.job import SearchJob, plan_search
from relook.policy_search.pool_predictions import choose_variant
from relook.policy_search.settings import RecipeChoice, SearchSettings
from relook.predictions.passes import View, distinct_views, predict_views
from relook.selection import greedy_search

BUDGETS = (5, 10, 20)
DEFAULT = "default"
_CIFAR = RECIPES["cifar"]
_MIRRORED = replace(_CIFAR, name="mirrored borders", finish=Step("reflect_crop_flip", 4))
_UNFLIPPED = replace(_CIFAR.without(["flip"]), name="no mirror images")

BY_HAND: Mapping[str, dict[str, Any]] = {
    "view temperature 1": {"view_temperature": 1.0},
    "view temperature 2": {"view_temperature": 2.0},
    "view temperature 4": {"view_temperature": 4.0},
    "mirrored borders": {"recipe": _MIRRORED},
    "no mirror images": {"recipe": _UNFLIPPED},
    "greedy, 80 candidates": {"strategy": "greedy", "pool_size": 80},
    "greedy, 200": {"strategy": "greedy", "pool_size": 200},
    "greedy, 200, view temperature 2": {
        "strategy": "greedy",
        "pool_size": 200,
        "view_temperature": 2.0,
    },
    "paper, 200": {"strategy": "paper", "pool_size": 200},
}


def planned(source: Source, search: NDArray[np.int64], rest: NDArray[np.int64]) -> dict[str, Any]:
    """Return the job of each alternative, with the recipe that the default's probe chose."""
    parts = [as_dataset(source.images[part], source.labels[part]) for part in (search, rest)]
    jobs = {}
    for name, options in {DEFAULT: {}, **BY_HAND}.items():
        given = dict(options)
        recipe, _ = RecipeChoice(given.pop("recipe", "auto")).of(source.images.shape[1:])
        job = plan_search(
            source.predictor, parts[0], SearchSettings(recipe, **given), test=parts[1]
        )
        jobs[name], probe = choose_variant(job, None, None)
        if name == DEFAULT:
            print(f"probe: {probe}", flush=True)
    return jobs


def scored(
    job: SearchJob,
    log_probs: NDArray[np.float32],
    labels: Labels,
    search: NDArray[np.int64],
    rest: NDArray[np.int64],
) -> dict[int, float]:
    """Select from a pool's predictions, and return the held-out cLL at each number of views."""
    settings = job.settings
    found = greedy_search(
        log_probs[:, search],
        labels[search],
        settings.length,
        defaults=range(job.pool.defaults),
        view_temperature=settings.view_temperature,
    )
    picks = found.picks
    clls = {}
    for budget in BUDGETS:
        length = max(n for n in range(1, len(picks) + 1) if len(set(picks[:n])) <= budget)
        entries = [averaged(log_probs[pick, rest], found.view_temperature) for pick in picks]
        clls[budget] = score(np.mean(entries[:length], axis=0), labels[rest])["cll"]
    return clls


def measure(source: Source, size: int, splits: int, out: Path) -> dict[str, list[dict[int, float]]]:
    """Return the held-out cLL of each alternative by budget, one of them per split."""
    orders = [
        np.random.default_rng(split).permutation(len(source.labels)) for split in range(splits)
    ]
    jobs = [planned(source, order[:size], order[size:]) for order in orders]
    needed = [
        View(sub, index)
        for own in jobs
        for job in own.values()
        for index, sub in enumerate(job.pool.candidates)
    ]
    views, places = distinct_views(needed)
    print(f"{len(views)} views of {len(source.labels):,} images", flush=True)
    predicted = predict_views(
        source.predictor, source.images, views, seed=0, store_path=out / f"{source.name}.zarr"
    )
    found: dict[str, list[dict[int, float]]] = {}
    rows = iter(places)
    for order, own in zip(orders, jobs, strict=True):
        for name, job in own.items():
            log_probs = predicted[[next(rows) for _ in job.pool.candidates]]
            clls = scored(job, log_probs, source.labels, order[:size], order[size:])
            found.setdefault(name, []).append(clls)
    return found


def show(found: Mapping[str, list[dict[int, float]]]) -> None:
    """Print the default's mean cLL, and what each alternative gains on it with its error."""
    print("| | " + " | ".join(f"{budget} views" for budget in BUDGETS) + " |")
    print("| --- |" + " ---: |" * len(BUDGETS))
    for name, own in found.items():
        cells = []
        for budget in BUDGETS:
            gains = [a[budget] - b[budget] for a, b in zip(own, found[DEFAULT], strict=True)]
            error = np.std(gains, ddof=1) / np.sqrt(len(gains))
            cells.append(
                f"{np.mean([one[budget] for one in own]):.4f}"
                if name == DEFAULT
                else f"{np.mean(gains):+.4f} ± {error:.4f}"
            )
        print(f"| {name} | " + " | ".join(cells).replace("-", "−") + " |")


def main() -> None:
    """Run what the options ask for."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, required=True)
    options.add_argument("--network", required=True, nargs="+")
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--images", type=int, default=1500)
    options.add_argument("--size", type=int, default=500, help="images to search on")
    options.add_argument("--splits", type=int, default=5)
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for network in chosen.network:
        source = read_source(chosen.data, network, chosen.images)
        found = measure(source, chosen.size, chosen.splits, chosen.out)
        print(f"\n{network}: {chosen.size} images to search on, {chosen.splits} splits\n")
        show(found)
        write_json_atomic(chosen.out / f"{source.name}.json", json.loads(json.dumps(found)))


if __name__ == "__main__":
    main()
