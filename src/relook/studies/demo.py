"""The whole course of work on embedded data: train a small network, search, compare, report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from relook.data import load_data
from relook.evaluation.baselines import Options
from relook.evaluation.compare import compare
from relook.evaluation.comparison import Comparison, save_comparison
from relook.foundation.progress import StageProgress
from relook.io.files import write_bytes_atomic
from relook.io.run_directory import RunDirectory
from relook.models import load_model
from relook.models.small import new_small, save_small
from relook.policy.recipes import get_recipe
from relook.policy_search.search import PolicySearch, search_dataset
from relook.policy_search.settings import SearchSettings
from relook.report.pictures import png_bytes, policy_picture
from relook.studies.training import train

RECIPE = "small"
EPOCHS = 100
TRAIN_BATCH = 16
POOL_SIZE = 150
LENGTH = 20
BUDGETS = (1, 2, 5, 10, 20)
RUNS = 2
GRID_VIEWS = 5


@dataclass(frozen=True)
class Demo:
    """The demo's search, its full comparison, and their directory."""

    found: PolicySearch
    comparison: Comparison
    directory: Path


def trained_network(
    out: Path, seed: int, progress: Callable[[int, int], None] | None = None
) -> Path:
    """Return the file of the demo's network for a seed; train it unless it exists."""
    path = out / f"model-{seed}.safetensors"
    report = progress or (lambda done, total: None)
    if path.exists():
        report(EPOCHS, EPOCHS)
        return path
    network = train(
        new_small(seed=seed),
        load_data("digits:train"),
        epochs=EPOCHS,
        seed=seed,
        recipe=RECIPE,
        batch=TRAIN_BATCH,
        threads=1,
        progress=lambda done, _: report(done, EPOCHS),
    )
    save_small(network, path)
    return path


def run_demo(
    out: Path, model: Path, *, seed: int = 0, progress: StageProgress | None = None
) -> Demo:
    """Search and compare on the digits that the network was not trained on; write to `out`."""
    predictor = load_model(f"small@{model}")
    digits = load_data("digits:test")
    settings = SearchSettings(
        recipe=get_recipe(RECIPE), length=LENGTH, pool_size=POOL_SIZE, seed=seed, accelerate="torch"
    )
    origin = {
        "command": f"relook demo --out {out} --seed {seed}",
        "model": f"small@{model}",
        "data": "digits:test",
    }
    run = out / f"seed-{seed}"
    found = search_dataset(predictor, digits, settings, run=run, progress=progress, origin=origin)
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
            runs=RUNS,
            options=Options(grid_views=GRID_VIEWS),
            batch=settings.batch,
            store_path=directory.path / "compare.zarr",
            progress=progress,
        )
        save_comparison(directory.path, comparison, digits)
        shown = policy_picture(found.policy, digits.plain[list(comparison.gallery)])
        write_bytes_atomic(directory.path / "views.png", png_bytes(shown))
    return Demo(found, comparison, run)
