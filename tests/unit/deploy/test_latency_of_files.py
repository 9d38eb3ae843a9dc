import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.support import refused
from tests.unit.policy_search.searched_run import SearchedRun, searched_run
from typer.testing import CliRunner, Result

import relook
from relook.cli.compare import compare_command
from relook.cli.export import export_command
from relook.data import load_data
from relook.deploy.latency import TORCH, Fitting, engine_for, fit_latency
from relook.evaluation.comparison import load_comparison
from relook.evaluation.latency import LATENCY, Latency, Limit, Rung
from relook.models import CallablePredictor, TorchPredictor
from relook.models.onnx_runtime import is_installed
from relook.models.small import new_small
from relook.numerics.intervals import Interval
from relook.policy import Policy
from relook.policy.recipes import get_recipe
from relook.report import write_report
from relook.report.run_files import read_run

pytestmark = [
    pytest.mark.skipif(not is_installed(), reason="onnx or onnxruntime is not installed"),
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
]

app = typer.Typer()
app.command("compare")(compare_command)
app.command("export")(export_command)
HOW: Any = {"size": (32, 32), "channels": 1}


def run_command(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


def policy() -> Policy:
    return Policy.load("preset:crops?views=4")


def test_without_a_comparison_it_is_the_policy_with_as_many_views_as_fit() -> None:
    known = TorchPredictor(new_small(width=2)), policy(), None, get_recipe("small")
    found = fit_latency(*known, Limit(1e6, 2), **HOW)
    assert (found.deployed.policy.views, found.latency.best.views) == (4, 4)
    assert found.latency.engine == "ONNX Runtime"
    assert found.latency.image == "images of 32 × 32"
    assert found.batch is not None
    assert found.batch.shape == (2, 1, 32, 32)
    seconds = count()  # a call takes one second: all are equally slow
    slow = fit_latency(*known, Limit(2000), clock=lambda: float(next(seconds)), **HOW)
    assert {one.milliseconds for one in slow.latency.rungs} == {1000.0}
    refused(
        "expected a call within 10 ms, got 1,000 ms for the plain image alone",
        lambda: fit_latency(*known, Limit(10), clock=lambda: float(next(seconds)), **HOW),
    )
    refused("expected format onnx", lambda: fit_latency(*known, Limit(1), format="torch-export"))


@pytest.mark.parametrize(("low", "budget"), [(0.01, 50.0), (-0.01, 50.0), (0.01, 25.0)])
def test_why_there_are_not_more_views_and_what_is_not_shown(low: float, budget: float) -> None:
    rungs = (
        Rung("plain", "", 1, -0.5, None, 10.0),
        Rung("gps", "learned policy", 2, -0.4, Interval(0.1, low, 0.2, 0.95), 20.0),
        Rung("gps", "learned policy", 3, -0.45, Interval(0.05, -0.1, 0.2, 0.95), 30.0),
    )
    latency = Latency(rungs, 1, budget, 1, "ONNX Runtime", "cpu", 1, "image", "")
    note = Fitting(latency, None, None, "90 held-out images").note  # type: ignore[arg-type]
    more = "more views fit, but score no higher on 90 held-out images"
    assert (more in note) == (budget > 30)
    assert ("its interval contains 0" in note) == (low < 0)


def test_what_cannot_be_exported_is_measured_in_torch() -> None:
    network = new_small(width=2)
    function = CallablePredictor(lambda images: network(images / 255), outputs="logits", classes=10)
    assert engine_for(function) == TORCH
    assert engine_for(TorchPredictor(network)) != TORCH
    known = function, policy(), None, get_recipe("small"), Limit(1e6)
    found = fit_latency(*known, engine=TORCH, **HOW)
    assert found.latency.engine == TORCH
    assert found.batch is None


def test_an_export_within_a_time_is_measured_and_kept(run: SearchedRun, tmp_path: Path) -> None:
    out = tmp_path / "model.onnx"
    before = (run.path / "policy.json").read_bytes()
    given = ("--channels", 1, "--temperature", "none")  # this run's policy has no temperature
    words = ("export", run.path, *given, "--method", "policy", "--out", out)
    done = run_command(*words, "--latency", "1000s", "--json")
    latency = json.loads(done.stdout)["latency"]
    assert 0 < latency["milliseconds"] < latency["budget"] == 1e6
    assert latency["batch"] == 1
    assert "Within 1,000,000 ms:" in done.stderr
    assert (run.path / "policy.json").read_bytes() == before
    kept = LATENCY.read(run.path / "latency.json")
    assert kept.best.milliseconds is not None
    refused("--views or --latency", run_command, *words, "--force", "--views", 1, "--latency", "1s")
    refused("for the plain image alone", run_command, *words, "--force", "--latency", "0.00001ms")


def test_a_time_within_which_the_verdict_recommends_the_plain_image_says_so(
    run: SearchedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.evaluation.comparison.RELEVANT_GAIN", 1.0)
    run_command("compare", run.path, "--methods", "plain", "--budgets", 2)
    verdict = load_comparison(run.path / "comparison.json").verdict
    assert verdict.recommended_method == "plain"
    words = ("export", run.path, "--channels", 1, "--latency", "1000s")
    done = run_command(*words, "--out", tmp_path / "model.onnx")
    advised = ", as the verdict recommends; more views were not timed: method='policy' (--method"
    assert advised in done.stderr
    assert LATENCY.read(run.path / "latency.json").plain_advised
    asked = run_command(*words, "--method", "plain", "--out", tmp_path / "other.onnx")
    assert "as the verdict recommends" not in asked.stderr


def test_a_comparison_has_the_frontier_and_so_do_show_and_report(run: SearchedRun) -> None:
    words = ("compare", run.path, "--methods", "flip", "--budgets", "1,2", "--latency", "1000s")
    done = run_command(*words)
    assert "what milliseconds buy" in done.stdout
    assert "Within 1,000,000 ms:" in done.stdout
    found = read_run(run.path)
    assert found.latency is not None
    text = write_report(run.path, figures=False).read_text()
    assert "What milliseconds buy" in text
    # Another policy in the run has times of its own.
    file = run.path / "latency.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "policy": "another"}))
    assert read_run(run.path).latency is None
    file.write_text(json.dumps({**content, "chosen": 99}))
    refused("latency.json: chosen: expected a place", read_run, run.path)


def test_a_search_exports_what_fits(tmp_path: Path) -> None:
    digits = load_data("digits")
    given = new_small(seed=1), digits.plain[:120], digits.labels[:120]
    quick: Any = {"recipe": "small", "pool_size": 6, "length": 3, "progress": False}
    found = relook.search(*given, out=tmp_path / "run", **quick)
    done = found.export(tmp_path / "m.onnx", method="policy", latency="1000s", latency_batch=3)
    assert done.latency is not None
    assert done.latency.batch == 3
    assert "for 3 images in ONNX Runtime here" in str(done)
    assert LATENCY.read(tmp_path / "run/latency.json").batch == 3
    path = tmp_path / "n.onnx"
    refused("views or latency", lambda: found.export(path, views=2, latency="1s"))
