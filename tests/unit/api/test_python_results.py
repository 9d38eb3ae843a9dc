"""What a search from Python gives back, and how it and the command line go on from each other."""

import io
import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support import refused
from tests.unit.cli import command_line

import relook
from relook.api import progress_bars
from relook.data import load_data
from relook.models import TorchPredictor
from relook.models.small import new_small, save_small

QUICK: Any = {"recipe": "small", "pool_size": 4, "length": 2}
FEW: Any = {"budgets": (1, 2), "methods": ("cf",), "measure_cost": False}
DIGITS = load_data("digits").subset(np.arange(90))

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:the model takes"),
]


def found(**how: Any) -> relook.FoundPolicy:
    return relook.search(new_small(seed=1), DIGITS, **QUICK, **how)


def command(*words: object) -> str:
    return command_line.relook(*words).output


@pytest.fixture
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.chdir(tmp_path)
    save_small(new_small(seed=1), tmp_path / "net.safetensors")
    np.savez(tmp_path / "images.npz", images=DIGITS.plain.numpy(), labels=DIGITS.labels)
    return "small@net.safetensors", "npz:images.npz"


def test_the_command_line_goes_on_from_a_search_of_specs(specs: tuple[str, str]) -> None:
    kept = relook.search(*specs, out="runs/mine", **QUICK)
    relook.search(*specs, **QUICK).save("runs/saved")
    for run in ("runs/mine", "runs/saved"):
        command("compare", run, "--methods", "cf", "--budgets", "1,2")
        command("report", run, "--no-figures")
        command("show", run)
        command("export", run, "--out", f"{run}.onnx", "--method", "policy")
        assert Path(f"{run}.onnx").is_file()
        assert relook.Policy.load(f"{run}/policy.json") == kept.policy
    words = ["search", "-m", specs[0], "-d", specs[1], "--out", "runs/mine", "--recipe", "small"]
    command(*words, "--pool-size", 4, "--length", 2)  # the same search: nothing to do


def test_a_run_of_a_model_in_memory_asks_for_it(specs: tuple[str, str]) -> None:
    found().save("runs/memory")
    command("show", "runs/memory")
    command("report", "runs/memory", "--no-figures")
    refused("give --model and --data", command, "compare", "runs/memory")
    refused("give --model", command, "export", "runs/memory", "--out", "a.onnx")
    given = ("--model", specs[0])
    command("export", "runs/memory", "--out", "a.onnx", "--method", "policy", *given)
    few = ("--methods", "cf", "--budgets", "1,2")
    output = command("compare", "runs/memory", *given, "--data", specs[1], *few)
    assert "only its 30 held-out images are used" in output


def test_python_goes_on_from_a_run_of_the_command_line(specs: tuple[str, str]) -> None:
    words = ["search", "-m", specs[0], "-d", specs[1], "--out", "runs/cli", "--recipe", "small"]
    command(*words, "--pool-size", 4, "--length", 2)
    run = relook.load("runs/cli")
    fresh = relook.search(*specs, **QUICK)
    assert (run.policy, run.pool, run.trace) == (fresh.policy, fresh.pool, fresh.trace)
    images = DIGITS.plain[:5]
    expected = fresh.tta(method="policy").predict_proba(images)
    np.testing.assert_array_equal(run.tta(method="policy").predict_proba(images), expected)
    again, own = run.compare(**FEW), fresh.compare(**FEW)
    assert [row.metrics for row in again.rows] == [row.metrics for row in own.rows]
    assert relook.load("runs/cli").comparison.budgets == (1, 2)  # it is kept in the run
    run.save("runs/copy")
    assert relook.load("runs/copy").policy == run.policy
    assert run.report("page.html").read_text().startswith("<!doctype html>")


def test_a_loaded_run_in_memory_is_given_its_model_and_images(tmp_path: Path) -> None:
    first = found(out=tmp_path / "run")
    bare = relook.load(tmp_path / "run")
    refused("model in memory: give it", bare.tta, method="policy")
    model = relook.load(tmp_path / "run", new_small(seed=1))
    assert model.tta(method="policy").policy == first.policy
    refused("images in memory: give them", model.compare, **FEW)
    whole = relook.load(tmp_path / "run", new_small(seed=1), DIGITS.plain, DIGITS.labels)
    assert whole.compare(**FEW).images == 30
    other = load_data("digits").subset(np.arange(100, 190))
    refused("got others", relook.load(tmp_path / "run", new_small(seed=1), other).compare, **FEW)


def test_a_loaded_run_knows_how_borders_were_chosen(tmp_path: Path) -> None:
    images = load_data("digits").subset(np.arange(320))
    first = relook.search(new_small(seed=1), images, out=tmp_path, **QUICK)
    assert first.probe is not None
    assert relook.load(tmp_path).probe == first.probe
    assert relook.load(tmp_path).race is None


def test_the_exported_file_has_classes_that_are_called_by_numbers(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    found().export(tmp_path / "model.onnx", method="policy")
    kept = onnx.load(tmp_path / "model.onnx").metadata_props
    (names,) = (one.value for one in kept if one.key == "classes")
    assert json.loads(names) == [str(digit) for digit in range(10)]


def test_a_damaged_search_is_one_line(tmp_path: Path) -> None:
    found(out=tmp_path / "run")
    file = tmp_path / "run" / "search.json"
    file.write_text(file.read_text().replace('"pick"', '"pock"'))
    refused("expected what a search left", relook.load, tmp_path / "run")
    refused("run.json is missing", relook.load, tmp_path)


def test_results_fit_a_screen_and_become_tables(tmp_path: Path) -> None:
    result = found()
    wide = result.compare(budgets=(1, 2, 5, 10), methods=("cf", "flip"), measure_cost=False)
    for shown in (result, wide, result.policy, DIGITS):
        for text in (repr(shown), str(shown)):
            assert sum(max(1, math.ceil(len(line) / 100)) for line in text.splitlines()) <= 24
    assert " ".join(wide.verdict.sentence.split()) in " ".join(repr(wide).split())
    table = wide.to_pandas()
    assert len(table) == len(wide.rows)
    assert {"method", "views", "cll", "accuracy", "cll_over_plain_low"} <= set(table.columns)
    assert len(result.to_pandas()) == len(result.comparison.rows)
    assert result.plot("accuracy").axes
    refused("unknown figure 'acuracy': did you mean 'accuracy'", result.plot, "acuracy")
    page = result.report(tmp_path / "page.html")
    assert result.comparison.verdict.sentence.split(":")[0] in page.read_text()
    assert not list(tmp_path.glob("page"))
    refused("expected the path of a page", result.report)


def test_pandas_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    result = found()
    monkeypatch.setitem(sys.modules, "pandas", None)
    refused("pip install pandas", result.to_pandas)


def test_images_that_the_search_used_are_not_calibrated_on() -> None:
    result = found()
    refused("give others, or reuse_images=True", result.calibrate, DIGITS)
    assert result.calibrate(DIGITS, reuse_images=True).policy.temperatures
    refused("reuse_images=True", relook.calibrate, new_small(), DIGITS, policy=result.policy)


def test_former_names_and_orders_say_the_new_ones(tmp_path: Path) -> None:
    with pytest.warns(DeprecationWarning, match=r"search\(out=…\) now"):
        policy = found(run=tmp_path / "run").policy
    model, others = TorchPredictor(new_small(seed=1)), load_data("digits").subset(range(200, 240))
    calls: list[tuple[int, int]] = []
    with pytest.warns(DeprecationWarning, match=r"compare\(model, images, labels, policy=…\) now"):
        old = relook.compare(
            model, others, policy, recipe="small", progress=lambda *a: calls.append(a), **FEW
        )
    new = relook.compare(new_small(seed=1), others.plain, others.labels, policy=policy, **FEW)
    assert [row.metrics for row in old.rows] == [row.metrics for row in new.rows]
    assert calls
    with pytest.warns(DeprecationWarning, match=r"calibrate\(model, images, labels, policy=…\) n"):
        fitted = relook.calibrate_policy(model, others, policy)
    assert fitted == relook.calibrate(model, others, policy=policy)


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_in_a_terminal_and_in_a_log(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(**how: Any) -> str:
        text = io.StringIO()
        looks = Console(file=text, width=120, force_terminal=terminal, highlight=False)
        monkeypatch.setattr(progress_bars, "messages", looks)
        found(**how)
        return text.getvalue()

    for text in (shown(), shown(progress=True)):
        assert "4 candidates × 60 images, then 30 held-out" in text
        assert re.search(r"\nabout \d+ s in all, at [\d,]+ views/s, measured now\n", text)
        assert "predicting the pool" in text
    assert shown(progress=False) == ""
    stages: list[str] = []
    assert shown(progress=lambda stage, *_: stages.append(stage)) == ""
    assert set(stages) == {"predict", "select", "evaluate"}


def test_labels_are_given_once() -> None:
    both = r"expected labels with a Tensor, got none: .*relook.search\(model, images, labels\)"
    refused(both, relook.search, new_small(), DIGITS.plain)
    refused("expected no labels with a Dataset", relook.search, new_small(), DIGITS, DIGITS.labels)


def test_mistakes_of_images_and_labels_are_named() -> None:
    from_1 = "labels go from 1 to 10, expected 0 to 9, as the model has 10 classes: subtract 1"
    refused(from_1, relook.search, new_small(), DIGITS.plain, DIGITS.labels + 1)
    few = "at least 4 held-out images, got only .*, about 12 in all$"
    refused(few, relook.search, new_small(), DIGITS.plain[:5], DIGITS.labels[:5], holdout=1 / 3)
    grey = r"expected images with 3 channels, as the model takes, got 1: .*--channels 3"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("relook.policy_search.job.predict_views", None)
        refused(grey, relook.search, new_small(3), DIGITS.plain, DIGITS.labels, mean=(0.5,) * 3)
    refused("undo the normalisation", relook.search, new_small(), DIGITS.plain / 99 - 1, [0] * 90)
    refused("expected policy=", relook.compare, new_small(), DIGITS)
    compare: Any = relook.compare
    refused("keyword of compare 'bugets'", compare, new_small(), DIGITS, policy="flip", bugets=1)
