"""`relook study ensembles`, as a user types it."""

import json
from pathlib import Path

import pytest
from tests.e2e.conftest import Relook
from torch import Tensor

from relook.models import Predictor, load_model
from relook.models.small import new_small, save_small
from relook.policy import Policy


@pytest.fixture
def members(tmp_path: Path) -> list[str]:
    """Options that name two small networks with random weights."""
    options = []
    for seed in (1, 2):
        path = tmp_path / f"net-{seed}.safetensors"
        save_small(new_small(width=4, seed=seed), path)
        options += ["--model", f"small@{path}"]
    return options


QUICK = ("--recipe", "small", "--pool-size", 10, "--budgets", "1,2", "--split", "60:40")


def test_three_ways_beside_baselines(
    relook: Relook,
    members: list[str],
    data: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "ensemble"
    files = [tmp_path / f"table.{kind}" for kind in ("csv", "md", "tex")]
    sources = (*members, "--data", data)
    command = ("study", "ensembles", *sources, *QUICK, "--grid-views", 1, "--out", out)
    done = relook.ok(*command, "--csv", files[0], "--markdown", files[1], "--latex", files[2])
    for label in ("GPS single", "GPS ensemble", "GPS each", "(MGrid)", "(MTrain)", "(CF)", "(CC)"):
        assert label in done.out
    assert "has the best cLL" in done.out
    content = json.loads((out / "ensembles.json").read_text())
    settings = content["settings"]
    assert settings["members"] == ["net-1", "net-2"]
    assert (settings["searched"], settings["images"]) == (60, 40)
    assert settings["specs"]["data"] == data
    assert all(row["passes"] == row["members"] * row["views"] for row in content["rows"])
    names = sorted(path.name for path in (out / "policies").iterdir())
    assert names == ["ensemble.json", "member-1.json", "member-2.json"]
    assert Policy.load(out / "policies" / "ensemble.json").recipe == "small"
    drawn = sorted(path.stem for path in (out / "figures").iterdir() if path.suffix == ".svg")
    assert drawn == ["ensembles_accuracy", "ensembles_cll", "policy_vs_crops", "train_vs_clean"]
    assert [path.read_text()[:6] for path in files] == ["study,", "2 memb", "\\begin"]

    seen = []
    kind = type(load_model(members[1]))
    call = kind.__call__

    def counting(self: Predictor, images: Tensor) -> Tensor:
        seen.append(len(images))
        return call(self, images)

    monkeypatch.setattr(kind, "__call__", counting)
    assert json.loads(relook.ok(*command, "--json", "--no-figures").out)["rows"] == content["rows"]
    # One image each, to see that model and data belong together, and a look per store at whether
    # the model still answers the same.
    assert sorted(set(seen)) == [1, 16]
    assert seen.count(1) <= 2


def test_mistakes_are_one_line(
    relook: Relook, members: list[str], data: str, tmp_path: Path
) -> None:
    def error(*arguments: object) -> str:
        done = relook.refused(
            "study", "ensembles", *arguments, "--data", data, *QUICK, "--out", tmp_path / "o"
        )
        line = done.err.strip().splitlines()[-1]
        assert line.startswith("error:")
        return line

    three = tmp_path / "three.safetensors"
    save_small(new_small(classes=3, width=4), three)
    assert "--model at least twice" in error(*members[:2])
    assert "got 10, 3 classes" in error(*members[:2], "--model", f"small@{three}")
    assert "--single: expected a member from 1 to 2" in error(*members, "--single", 3)
    assert "draws: expected fixed or fresh" in error(*members, "--draws", "new")
    assert "one of --split and --test" in error(*members, "--test", data)
    assert "--name 2 times" in error(*members, "--name", "one")
    assert "unknown strategy" in error(*members, "--strategy", "best")
