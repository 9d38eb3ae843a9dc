"""A study of an ensemble of given networks."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from relook.models.small import new_small, save_small
from relook.policy.recipes import CHANGES
from relook.policy_search.run_record import load_run
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.run import reproduce

STUDY = """
recipe = "small"
batch = 64
parts = ["search", "ensembles"]

[data.digits]
test = "digits:test"
split = "200:60"

[models.One]
spec = "small@one.safetensors"

[models.Two]
spec = "small@two.safetensors"

[search]
strategy = "auto"
length = 2
pool_size = 6

[ensembles]
models = ["One", "Two"]
methods = ["plain"]
budgets = [2]
"""


def test_members_whose_search_has_chosen_another_crop_are_predicted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    always = tuple(replace(change, threshold=-math.inf) for change in CHANGES)
    monkeypatch.setattr("relook.policy_search.pool_predictions.CHANGES", always)
    for name in ("one", "two"):
        save_small(new_small(width=4), tmp_path / f"{name}.safetensors")
    (tmp_path / "study.toml").write_text(STUDY)
    reproduce(load_study(tmp_path / "study.toml"), tmp_path / "out")
    runs = [*(tmp_path / "out" / "jobs" / "search").glob("*/run")]
    probes = [load_run(run).probe for run in runs]
    assert all(probe and any(one["taken"] for one in probe.tried) for probe in probes)
    assert (tmp_path / "out" / "tables" / "ensembles-digits-one.md").is_file()
