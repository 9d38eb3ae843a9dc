"""A run directory as `relook search` leaves it, without the search."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from relook.data import Dataset, load_data, read_groups
from relook.evaluation.baselines import BASELINES
from relook.io.files import write_json_atomic
from relook.io.fingerprint import fingerprint
from relook.io.run_directory import RunDirectory
from relook.models.small import new_small, save_small
from relook.numerics.splits import stratified_split
from relook.policy.recipes import RECIPES


@dataclass(frozen=True)
class SearchedRun:
    """A run on the first digits of the test part: where it is, and what it was made of."""

    path: Path
    model: str
    data: str
    dataset: Dataset
    search: np.ndarray[Any, Any]
    held_out: np.ndarray[Any, Any]

    @property
    def policy(self) -> Path:
        return self.path / "policy.json"


def searched_run(
    directory: Path, *, images: int = 90, grouped: bool = False, test: str | None = None
) -> SearchedRun:
    """Write model, data, policy.json and run.json."""
    digits = load_data("digits:test").subset(np.arange(images))
    data, model = directory / "digits.npz", directory / "model.safetensors"
    patients = np.arange(images) // 3
    np.savez(data, images=digits.plain.numpy(), labels=digits.labels, patients=patients)
    save_small(new_small(width=4), model)
    dataset = load_data(f"npz:{data}")
    recipe = RECIPES["small"].without(["cutout"])
    origin = {"model": f"small@{model}", "data": f"npz:{data}", "outputs": "logits"}
    if grouped:
        origin["group"] = "patients"
        dataset = replace(dataset, groups=read_groups("patients", dataset))
    if test is not None:
        origin["test"] = test
    search, held_out = stratified_split(dataset.labels, 1 / 3, 0, dataset.groups)
    run = directory / "run"
    with RunDirectory(run) as files:
        BASELINES["cf"].policy(recipe, 3, seed=5).save(files.policy)
        write_json_atomic(
            files.run,
            {
                "format": "relook-run",
                "version": 1,
                "origin": origin,
                "settings": {
                    "recipe": recipe.to_json(),
                    "seed": 0,
                    "holdout": 1 / 3,
                    "test": None if test is None else load_data(test).fingerprint,
                },
                "data": {"fingerprint": dataset.fingerprint},
                "split": {"held_out_fingerprint": fingerprint(held_out)},
            },
        )
    return SearchedRun(run, origin["model"], origin["data"], dataset, search, held_out)
