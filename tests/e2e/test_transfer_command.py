"""`relook study transfer`, as a user types it."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.conftest import Relook
from tests.unit.policy_search.searched_run import SearchedRun, searched_run
from torch import Tensor

from relook.data import load_data
from relook.evaluation.baselines import BASELINES
from relook.io.files import write_json_atomic
from relook.models import Predictor, load_model
from relook.models.small import new_small, save_small
from relook.policy.recipes import RECIPES

QUICK = ("--budgets", "1,2", "--no-figures")


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


@pytest.fixture
def large(tmp_path: Path) -> str:
    path = tmp_path / "large.safetensors"
    save_small(new_small(width=8, seed=3), path)
    return f"small@{path}"


def policy_file(path: Path, recipe: str = "small", seed: int = 9) -> Path:
    path.parent.mkdir(exist_ok=True)
    BASELINES["cf"].policy(RECIPES[recipe], 2, seed=seed).save(path)
    return path


def test_a_small_networks_policy_on_a_large_one(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path
) -> None:
    out = tmp_path / "o"
    sources = ("--run", run.path, "--model", large)
    done = relook.ok("study", "transfer", *sources, "--budgets", "1,5", "--out", out)
    count = len(run.held_out)
    assert f"digits.npz: {count} of its {len(run.dataset)} images" in done.err
    assert "at most 3 views" in done.err
    assert "large (− CF)" in done.out
    assert "the policy of run on large" in done.out
    content = json.loads((tmp_path / "o" / "transfer.json").read_text())["settings"]
    assert [target["own"] for target in content["targets"]] == ["run", None]
    assert [target["images"] for target in content["targets"]] == [count, count]
    assert content["budgets"] == [1, 3]
    drawn = sorted(path.name for path in (tmp_path / "o" / "figures").iterdir())
    assert drawn == [f"{n}.{k}" for n in ("transfer", "transfer_views_2") for k in ("png", "svg")]


def test_models_with_policies_in_their_order(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path
) -> None:
    files = [tmp_path / f"table.{kind}" for kind in ("csv", "md", "tex")]
    done = relook.ok(
        *("study", "transfer", "-m", run.model, "-m", large, "-d", run.data),
        *("-p", policy_file(tmp_path / "a.json"), "-p", policy_file(tmp_path / "b.json", seed=2)),
        *("--name", "A", "--name", "B", "--out", tmp_path / "o", *QUICK),
        *("--csv", files[0], "--markdown", files[1], "--latex", files[2], "--json"),
    )
    rows, settings = (json.loads(done.out)[name] for name in ("rows", "settings"))
    assert list(settings["policies"]) == ["A", "B"]
    assert [target["own"] for target in settings["targets"]] == ["A", "B"]
    assert all(target["images"] == len(run.dataset) for target in settings["targets"])
    assert settings["specs"]["B"]["model"] == large
    changed = [r for r in rows if r.get("versus") == "own" and r["kind"] == "policy"]
    assert {(r["method"], r["model"]) for r in changed} == {("A", "B"), ("B", "A")}
    assert [path.read_text()[:6] for path in files] == ["study,", "change", "\\begin"]


def test_one_model_and_policies_found_elsewhere(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path
) -> None:
    other = policy_file(tmp_path / "published.json")
    done = relook.ok(
        *("study", "transfer", "-m", large, "-d", run.data, "-p", run.path, "-p", other),
        *("--out", tmp_path / "o", *QUICK, "--json"),
    )
    content = json.loads(done.out)["settings"]
    assert list(content["policies"]) == ["run", "published"]
    assert content["targets"][0]["own"] is None
    assert content["targets"][0]["images"] == len(run.held_out)


def test_two_data_sets(relook: Relook, run: SearchedRun, tmp_path: Path) -> None:
    part = run.dataset.subset(np.arange(40))
    np.savez(tmp_path / "part.npz", images=part.plain.numpy(), labels=part.labels)
    data = f"npz:{tmp_path / 'part.npz'}"
    done = relook.ok(
        *("study", "transfer", "-m", run.model, "-m", run.model, "-d", run.data, "-d", data),
        *("-p", policy_file(tmp_path / "a.json"), "-p", policy_file(tmp_path / "b.json", seed=2)),
        *("--out", tmp_path / "o", *QUICK, "--json"),
    )
    targets = json.loads(done.out)["settings"]["targets"]
    assert [target["name"] for target in targets] == ["model", "model 2"]
    assert [target["images"] for target in targets] == [90, 40]


def test_the_same_command_predicts_nothing_again(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("study", "transfer", run.path, "-m", large, "--out", tmp_path / "o", *QUICK)
    first = relook.ok(*command, "--json")
    kind = type(load_model(large))
    call, seen = kind.__call__, set()

    def counting(self: Predictor, images: Tensor) -> Tensor:
        seen.add(len(images))
        return call(self, images)

    monkeypatch.setattr(kind, "__call__", counting)
    assert json.loads(relook(*command, "--json").out)["rows"] == json.loads(first.out)["rows"]
    assert seen <= {1, 16}  # that the model fits the data, and still answers the same


def test_mistakes_are_one_line(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path
) -> None:
    data = run.data

    def error(*arguments: object) -> str:
        done = relook.refused("study", "transfer", *arguments, "--out", tmp_path / "o", *QUICK)
        line = done.err.strip().splitlines()[-1]
        assert line.startswith("error:")
        return line

    one, two = policy_file(tmp_path / "a.json"), policy_file(tmp_path / "b.json", "cifar")
    assert "relook study transfer runs/small" in error("--model", large)
    assert "a policy for each --model" in error("-m", large, "-m", run.model, "-p", one)
    assert "expected --data" in error("-m", large, "-p", one)
    assert "--data once or 1 times" in error("-m", large, "-p", one, "-d", data, "-d", data)
    assert "--name 1 times" in error("-m", large, "-p", one, "-d", data, *("--name", "a") * 2)
    assert "expected one of the recipe 'small'" in error(
        "-m", large, "-p", one, "-p", two, "-d", data
    )
    assert "unknown method" in error("--run", run.path, "--methods", "crops")


def test_policies_in_the_wrong_order_and_other_channels_are_refused(
    relook: Relook, run: SearchedRun, large: str, tmp_path: Path
) -> None:
    record = json.loads((run.path / "run.json").read_text())
    record["settings"]["model"] = load_model(run.model).fingerprint
    record["data"]["shape"] = [1, 32, 32]
    write_json_atomic(run.path / "run.json", record)
    other = policy_file(tmp_path / "b.json")
    common = ("study", "transfer", "-d", run.data, "--out", tmp_path / "o", *QUICK)
    swapped = relook.refused(*common, "-m", large, "-m", run.model, "-p", run.policy, "-p", other)
    assert "the policy given for large was searched for model" in swapped.err
    colour = tmp_path / "colour.npz"
    images = load_data(run.data).plain.expand(-1, 3, -1, -1).numpy()
    np.savez(colour, images=images, labels=load_data(run.data).labels)
    done = relook.refused(
        *("study", "transfer", "-m", large, "-p", run.policy, "-d", f"npz:{colour}?layout=nchw"),
        *("--out", tmp_path / "o", *QUICK),
    )
    assert "was searched on images with 1 channel, those of large have 3" in done.err
