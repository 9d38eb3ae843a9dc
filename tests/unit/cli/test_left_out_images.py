"""Images that a search left out are unseen by it, like its held-out ones."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support import refused
from tests.unit.cli.command_line import relook as command

import relook
from relook.data import load_data
from relook.deploy.early_exit.rule import EarlyExit
from relook.evaluation.comparison import load_comparison
from relook.io.identities import is_in
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.policy_search.job import SearchJob

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:.*are used; the policy"),
    pytest.mark.filterwarnings("ignore:.*is too short"),
]

QUICK: Any = {"pool_size": 6, "length": 3, "progress": False, "accelerate": "torch"}
FEW = ("--methods", "plain", "--budgets", 2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 300 digits, a search has 120 to search with, 90 held out and 90 left out."""
    directory = tmp_path_factory.mktemp("left_out")
    digits = load_data("digits:test")
    for name, part in (("digits", slice(0, 300)), ("others", slice(300, 400))):
        images, labels = digits.plain.numpy()[part], digits.labels[part]
        np.savez(directory / f"{name}.npz", images=images, labels=labels)
    save_small(new_small(width=4), directory / "m.safetensors")
    relook.search(*specs(directory), out=directory / "run", split="0.4:0.3", **QUICK)
    return directory


def specs(place: Path, name: str = "digits") -> tuple[str, str]:
    return f"small@{place}/m.safetensors", f"npz:{place}/{name}.npz"


def test_a_comparison_takes_them_if_the_runs_own_images_are_given(
    place: Path, tmp_path: Path
) -> None:
    words, data = ("compare", place / "run", *FEW, "--out", tmp_path), specs(place)[1]
    held_out = command(*words)
    assert "only its 90 held-out images are used" in held_out.stderr
    assert "--data uses the 90 images that the search left out, too" in held_out.stderr
    assert load_comparison(tmp_path / "comparison.json").images == 90
    whole = command(*words, "--data", data)
    assert "its 90 held-out images and 90 that the search left out are used" in whole.stderr
    assert "--data uses" not in whole.stderr
    compared = load_comparison(tmp_path / "comparison.json")
    assert compared.images == 180
    seen = is_in(load_data(data).identities, Policy.load(place / "run" / "policy.json").seen)
    assert not seen[list(compared.gallery)].any()
    # MGrid's magnitude is still found on the images searched on.
    searched = command(*words, "--data", data, "--methods", "mgrid", "--grid-views", 1, "--dry-run")
    assert f"{12 * 120:,} of them for MGrid's magnitude" in searched.stderr


def test_python_takes_the_same_images(place: Path) -> None:
    found = relook.load(place / "run")
    few: Any = {"methods": ("plain",), "budgets": (2,), "progress": False}
    assert found.compare(**few).images == 90
    assert found.compare(specs(place)[1], **few).images == 180


@pytest.mark.parametrize("given", [False, True])
def test_too_few_images_to_tell_says_how_to_use_them(
    place: Path, tmp_path: Path, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.evaluation.comparison.RELEVANT_GAIN", 0.0)
    more = ("--data", specs(place)[1]) if given else ()
    command("compare", place / "run", *FEW, "--out", tmp_path, *more)
    verdict = load_comparison(tmp_path / "comparison.json").verdict
    assert verdict.outcome == "too few images to tell"
    assert ("the search left 90 images out, which  relook compare RUN" in verdict.sentence) != given


def test_an_early_exit_takes_them_by_itself(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "rule.json"
    words = ("early-exit", place / "run", "--target", "views=2", "--no-figures", "--out", out)
    done = command(*words)
    assert "its 90 held-out images and 90 that the search left out are used" in done.stderr
    assert "90 images to learn on, 90 to report on" in done.stderr
    assert "90 images that neither policy nor rule was found on" in done.stdout
    known, rule = load_data(specs(place)[1]).identities, EarlyExit.load(out)
    policy = Policy.load(place / "run" / "policy.json")
    assert is_in(known, rule.seen).sum() == is_in(known, policy.seen).sum() + 90 == 210
    report = json.loads((tmp_path / "rule-report.json").read_text())
    assert report["views"]["low"] <= report["own"]["views"] <= report["views"]["high"]


def test_they_are_unseen_beside_a_test_set_too(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SearchJob, "seconds_a_pass", lambda job: 0.05)
    how, others = {**QUICK, "time": 30}, specs(place, "others")[1]
    found = relook.search(*specs(place), test=others, out=tmp_path / "run", **how)
    left = 300 - len(found.search_indices)
    assert left > 0
    words = ("compare", tmp_path / "run", *FEW, "--data")
    done = command(*words, specs(place)[1], "--out", tmp_path / "out")
    assert f"its {left} that the search left out are used" in done.stderr
    assert load_comparison(tmp_path / "out" / "comparison.json").images == left
    whole = {name: value for name, value in how.items() if name != "time"}
    relook.search(*specs(place), test=others, out=tmp_path / "whole", **whole)
    searched_on_all = ("compare", tmp_path / "whole", *FEW, "--data", specs(place)[1])
    refused("was searched on all images of", command, *searched_on_all)


def test_a_rule_is_refused_before_images_are_predicted(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.cli.early_exit.predict_views", None)
    target = ("--target", "accuracy-loss=0.005")
    message = "at least 1,078 are needed, .*: give more \\(--data\\), or allow a larger loss"
    refused(message, command, "early-exit", place / "run", *target)
    crossed = tmp_path / "run"
    relook.search(*specs(place), out=crossed, cross_fit=True, **QUICK)
    message = "300 of 300 are among those: leave them out, or give others \\(--data\\)"
    refused(message, command, "early-exit", crossed, "--target", "views=2")
