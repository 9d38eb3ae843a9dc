"""`relook search --time`, `--effort`, `--plan` and `--finish`, as a user runs them."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import Relook, Words

from relook.policy_search.job import SearchJob
from relook.predictions.store import PredictionStore

FEW = ("--recipe", "small", "--length", "3", "--batch", "64", "--accelerate", "torch", "--no-reuse")


@pytest.fixture(autouse=True)
def speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SearchJob, "seconds_a_pass", lambda job: 0.05)


def test_a_search_in_time_is_planned_kept_and_repeated(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    out, again = tmp_path / "run", tmp_path / "again"
    command = ("search", *sources, *FEW)
    tried = relook.ok(*command, "--out", out, "--effort", "quick", "--dry-run")
    too_short = "2 min is too short: the smallest plan takes about"
    speed, size = (
        "at 20 passes/s, with ",
        " s for the rest (16 candidates × 150 images, then 80 held-out images)",
    )
    assert too_short in tried.out
    assert speed in tried.out
    assert size in tried.out
    left_out = "10 of 240 images are left out: 2 min is too short for them (time, --time)"
    assert left_out in tried.out
    assert not out.exists()
    cost = json.loads(
        relook.ok(*command, "--out", out, "--effort", "quick", "--dry-run", "--json").out
    )
    assert cost["plan"]["size"] == {"candidates": 16, "search": 150, "proof": 80}
    done = relook.ok(*command, "--out", out, "--time", "2m")
    assert f"note: {too_short}" in done.err
    assert speed in done.err
    assert size in done.err
    assert left_out in done.err
    assert "; for less: pool_size=8, split='75:40' (--pool-size 8 --split 75:40)" in done.err
    assert "Plan for 2 min" not in done.err
    policy = (out / "policy.json").read_bytes()
    relook.ok(*command, "--out", out)
    assert (out / "policy.json").read_bytes() == policy
    relook.ok(*command, "--out", again, "--plan", out)
    assert (again / "policy.json").read_bytes() == policy
    assert "begun for 2 min" in relook.refused(*command, "--out", out, "--time", "3m").err
    assert "expected one of time" in relook.refused(*command, "--time", "3m", "--plan", out).err


def test_sizes_that_are_given_rule(relook: Relook, sources: Words, tmp_path: Path) -> None:
    command = ("search", *sources, *FEW, "--json", "--dry-run")
    sized = (*command, "--pool-size", "33", "--split", "100:50", "--out", tmp_path / "run")
    for more in ((), ("--time", "1s")):
        cost = json.loads(relook.ok(*sized, *more).out)
        assert (cost["candidates"], cost["images_to_search"]) == (33, 100)
        assert cost["images_held_out"] == 50
        assert cost["images_left_out"] == 90
    assert "expected a time like" in relook.refused(*command, "--time", "soon").err
    assert "unknown effort" in relook.refused(*command, "--effort", "best").err


def test_there_must_be_something_to_finish(relook: Relook, sources: Words, tmp_path: Path) -> None:
    command = ("search", *sources, *FEW, "--out", tmp_path / "run")
    assert "expected a complete round" in relook.refused(*command, "--finish").err


@pytest.mark.parametrize(("blocks", "round_is_complete"), [(2, False), (4, True)])
def test_an_interrupted_run_says_what_can_be_done_with_it(
    relook: Relook,
    sources: Words,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    blocks: int,
    round_is_complete: bool,
) -> None:
    run, write, left = tmp_path / "run", PredictionStore.write, iter(range(blocks))
    command = ("search", *sources, *FEW, "--pool-size", 48, "--out", run)

    def interrupted(store: PredictionStore, *block: Any) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        write(store, *block)

    with monkeypatch.context() as patched:
        patched.setattr(PredictionStore, "write", interrupted)
        done = relook(*command)
    assert done.code == 130
    passes = {2: 2 * 16 * 64, 4: 16 * 160 + 16 * 64}[blocks]
    assert f"to resume. {passes:,} of 7,680 passes are in complete blocks" in done.err
    assert ("With --finish it ends" in done.err) == round_is_complete
    shown = relook.refused("show", run).err
    assert f"unfinished: {passes:,} of 7,680 passes over the candidates are done" in shown
    assert ("with --finish to end with the 16 candidates that" in shown) == round_is_complete
    out = ("--out", tmp_path / "out.onnx")
    for other in (("report", run), ("compare", run), ("export", run, *out), ("conformal", run)):
        assert relook.refused(*other).err == shown
    if round_is_complete:
        assert "finishing with 16 of 48 candidates" in relook.ok(*command, "--finish").err
        return
    monkeypatch.setattr("relook.cli.search.options.NetworkOptions.load", None)
    assert "expected a complete round" in relook.refused(*command, "--finish").err
