"""A study of a given network, every image used twice."""

import json
from pathlib import Path

from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.policy_search.run_record import load_run
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.jobs import model_options
from relook.studies.reproduce.run import reproduce
from relook.studies.reproduce.settings import StudyModel

STUDY = """
recipe = "small"
batch = 64
parts = ["search", "compare"]

[data.digits]
test = "digits:test"

[models.Small]
spec = "small@weights.safetensors"
outputs = "logits"

[search]
strategy = "auto"
length = 2
pool_size = 6
cross_fit = true

[compare]
methods = ["cf"]
budgets = [2]
"""


def test_all_images_are_searched_and_scored_and_the_run_knows_its_model(tmp_path: Path) -> None:
    save_small(new_small(width=4), tmp_path / "weights.safetensors")
    (tmp_path / "study.toml").write_text(STUDY)
    reproduce(load_study(tmp_path / "study.toml"), tmp_path / "out")
    (run,) = (tmp_path / "out" / "jobs" / "search").glob("*/run")
    assert len(Policy.load(run / "policy.json").halves) == 2
    assert load_run(run).origin["outputs"] == "logits"
    (file,) = (tmp_path / "out" / "jobs" / "compare").glob("*/comparison.json")
    compared = json.loads(file.read_text())
    assert compared["settings"]["cross_fit"] is True
    assert compared["images"] == load_run(run).split["search"] == load_run(run).split["held_out"]


def test_what_is_said_of_a_model_is_kept_as_the_command_line_keeps_it() -> None:
    model = StudyModel(spec="onnx:net.onnx", outputs="logits", mean=(0.5, 0.25), size=64)
    assert model_options(model) == {"outputs": "logits", "mean": "0.5,0.25", "size": "64"}
