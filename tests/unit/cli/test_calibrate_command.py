import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.cli.command_line import relook
from tests.unit.policy_search.searched_run import SearchedRun, searched_run

from relook.data import load_data
from relook.evaluation.comparison import load_comparison
from relook.policy import Policy


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchedRun:
    monkeypatch.chdir(tmp_path)
    others = load_data("digits:test").subset(np.arange(90, 150))
    np.savez("others.npz", images=others.plain.numpy(), labels=others.labels)
    return searched_run(tmp_path)


def test_what_was_fitted_is_said_with_its_worth_and_what_comes_next(run: SearchedRun) -> None:
    done = relook("calibrate", run.path, "--data", "npz:others.npz")
    fitted = run.path / "policy.calibrated.json"
    assert "all views, cross-validated: cLL −" in done.stdout
    assert "calibration error (ECE) " in done.stdout
    assert f"relook export {fitted} -o model.onnx" in " ".join(done.stderr.split())
    again = relook("calibrate", fitted, "--data", "npz:others.npz", "--reuse-images", "--json")
    scores = json.loads(again.stdout)
    temperatures = Policy.load(fitted).temperatures
    assert temperatures is not None
    assert scores["policy"]["temperatures"] == pytest.approx(temperatures)
    # Fitted on these very images, the policy is a little better on them than cross-validated.
    assert scores["before"]["cll"] >= scores["after"]["cll"]
    once_more = ("--reuse-images", "--force")
    shown = relook("calibrate", fitted, "--data", "npz:others.npz", *once_more).stdout
    assert f"temperature {temperatures[0]:.4f} (was {temperatures[0]:.4f})" in shown


def test_a_policy_file_in_a_run_has_the_runs_model_and_images(run: SearchedRun) -> None:
    relook("calibrate", run.path, "--data", "npz:others.npz")
    fitted = run.path / "policy.calibrated.json"
    relook("compare", fitted, "--methods", "flip", "--budgets", "1,3")
    found = load_comparison(Path("runs/compare/comparison.json"))
    assert (found.images, found.settings["model"]["spec"]) == (30, run.model)
    assert found.policy.temperatures == Policy.load(fitted).temperatures
    assert not (run.path / "comparison.json").exists()
