"""`relook study objectives`, `magnitudes` and `statistics`, from start to files."""

import csv
import json
from pathlib import Path

from tests.e2e.conftest import Relook

from relook.policy import Policy, Step, SubPolicy


def test_objectives_writes_all_it_found(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    command = (
        "study", "objectives", "-m", model, "-d", data, "--recipe", "small", "--pool-size", 6,
        "--length", 2, "--runs", 2, "--out", out, "--name", "mine",
        "--csv", tmp_path / "o.csv", "--markdown", tmp_path / "o.md", "--latex", tmp_path / "o.tex",
    )  # fmt: skip
    done = relook.ok(*command)
    assert "searched with" in done.out
    assert "The highest held-out cLL comes from" in done.out
    assert (out / "figures" / "objectives.png").stat().st_size > 1000
    assert "| searched with | views | acc. % | LL | cLL |" in (tmp_path / "o.md").read_text()
    assert r"\label{table:gps_metrics}" in (tmp_path / "o.tex").read_text()
    with (tmp_path / "o.csv").open() as file:
        lines = [(one["model"], one["metric"], one["versus"]) for one in csv.DictReader(file)]
    assert lines.count(("mine", "cll", "")) == 4
    saved = (out / "objectives.json").read_bytes()
    again = relook(*command, "--json")
    assert {row["runs"] for row in json.loads(again.out)["rows"]} == {2}
    assert json.loads(saved)["rows"] == json.loads(again.out)["rows"]
    assert "did you mean 'accuracy'" in relook.refused(*command, "--objectives", "cll,acuracy").err


def test_magnitudes_prints_the_grid_and_the_choice(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = relook.ok(
        "study", "magnitudes", "-m", model, "-d", data, "--recipe", "small", "--views", 2,
        "--magnitudes", "0,20", "--runs", 2, "--out", out, "--markdown", tmp_path / "m.md",
    )  # fmt: skip
    assert "M* by each metric" in done.out
    assert "M* is" in done.out
    assert (out / "figures" / "magnitudes.svg").exists()
    assert "| 20 |" in (tmp_path / "m.md").read_text()
    for options, message in (
        (("--magnitudes", "0,x"), "--magnitudes: expected numbers like 0,5,10"),
        (("--magnitudes", "70"), "expected magnitudes from 0 to 60"),
        (("--draws", "none"), "--draws: expected fixed or fresh"),
    ):
        failed = relook.refused(
            "study", "magnitudes", "-m", model, "-d", data, "--out", out, *options
        )
        assert message in failed.err


def test_statistics_counts_groups_of_policies(relook: Relook, tmp_path: Path) -> None:
    strong = Policy((SubPolicy((Step("rotate", 10), Step("rotate", 20))),))
    weak = Policy((SubPolicy((Step("rotate", 2),)), SubPolicy()))
    strong.save(tmp_path / "strong.json")
    (tmp_path / "run").mkdir()
    weak.save(tmp_path / "run" / "policy.json")
    groups = (f"trained={tmp_path / 'strong.json'}", f"vanilla={tmp_path / 'run'}")
    done = relook.ok(
        "study", "statistics", *groups, "--out", tmp_path / "s", "--csv", tmp_path / "s.csv"
    )
    assert "trained" in done.out
    assert "1 of 2" in done.out
    text = (tmp_path / "s.csv").read_text()
    assert "statistics,trained,1,rotate,count,2.0," in text
    assert "statistics,trained,1,rotate,magnitude,15.0," in text
    assert (tmp_path / "s" / "figures" / "policy_transforms.png").exists()
    plain = relook("study", "statistics", tmp_path / "strong.json", "--json")
    assert json.loads(plain.out)["rows"][0]["group"] == "policies"
    assert "nowhere.json" in relook.refused("study", "statistics", "a=nowhere.json").err
