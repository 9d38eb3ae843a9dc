"""The whole job on embedded data: train a small network, search, compare, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relook.compare import compare, save_comparison
from relook.comparison import Comparison
from relook.data import load_data
from relook.models import Predictor, load_model
from relook.models.small import new_small, save_small
from relook.policy_search import PolicySearch, Progress, SearchSettings, search_dataset
from relook.recipes import get_recipe
from relook.run_directory import RunDirectory
from relook.training import train

RECIPE = "small"
EPOCHS = 40
POOL_SIZE = 200
LENGTH = 20
BUDGETS = (1, 2, 5, 10, 20)


@dataclass(frozen=True)
class Demo:
    """What the demo made: the search's result, the full comparison, and where they are."""

    found: PolicySearch
    comparison: Comparison
    directory: Path


def run_demo(
    out: Path,
    *,
    seed: int = 0,
    progress: Progress | None = None,
    on_train: Callable[[int, int], None] | None = None,
) -> Demo:
    """Train on 40 % of the digits, search and compare on the rest; all of it under `out`."""
    predictor = _trained(out / "model.safetensors", seed, on_train)
    digits = load_data("digits:test")
    settings = SearchSettings(
        recipe=get_recipe(RECIPE), length=LENGTH, pool_size=POOL_SIZE, seed=seed
    )
    origin = {
        "command": f"relook demo --out {out} --seed {seed}",
        "model": f"small@{out / 'model.safetensors'}",
        "data": "digits:test",
    }
    run = out / "search"
    found = search_dataset(
        predictor, digits, settings, run=run, progress=progress, origin=origin
    )
    held_out = digits.subset(found.held_out_indices)
    with RunDirectory(run) as directory:
        comparison = compare(
            predictor,
            held_out,
            found.policy,
            indices=found.held_out_indices,
            validation=digits.subset(found.search_indices),
            recipe=settings.recipe,
            budgets=BUDGETS,
            seed=seed,
            runs=3,
            batch=settings.batch,
            store_path=directory.path / "compare.zarr",
            progress=None if progress is None else lambda d, t: progress("compare", d, t),
        )
        save_comparison(directory.path, comparison, held_out)
    return Demo(found, comparison, run)


def _trained(path: Path, seed: int, on_train: Callable[[int, int], None] | None) -> Predictor:
    """Train the network, unless an interrupted demo with this seed already has."""
    if not path.exists():
        network = train(
            new_small(seed=seed),
            load_data("digits:train"),
            epochs=EPOCHS,
            seed=seed,
            recipe=RECIPE,
            progress=None if on_train is None else lambda done, _: on_train(done, EPOCHS),
        )
        save_small(network, path)
    return load_model(f"small@{path}")
