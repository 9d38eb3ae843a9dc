import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.e2e.conftest import Relook, Words

import relook as package
from relook.cli.verbs import GROUPS, MOVED, VERBS
from relook.data import load_data
from relook.deploy import calibrate
from relook.models.small import load_small
from relook.numerics.splits import stratified_split

QUICK = ("--recipe", "small", "--pool-size", "12", "--length", "4", "--batch", "64", "--no-reuse")


def test_search_writes_what_it_promises_and_can_be_repeated(
    relook: Relook, sources: Words, model: str, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    done = relook.ok("search", *sources, "--out", first, *QUICK)
    assert "plain image" in done.out
    assert "cLL" in done.out
    for name in ("policy.json", "search.json", "run.json", "comparison.json", "predictions.zarr"):
        assert (first / name).exists()
    search = (first / "search.json").read_bytes()
    content = json.loads(search)
    assert float(content["threshold"]) in (1, 3)
    assert content["pool"][0]["steps"] == []
    assert len(content["pool"]) == 12
    again = relook("search", *sources, "--out", first, *QUICK, "--strategy", "conservative")
    other = relook("search", *sources, "--out", second, *QUICK)
    assert again.code == other.code == 0
    assert (first / "search.json").read_bytes() == search
    assert (first / "policy.json").read_bytes() == (second / "policy.json").read_bytes()
    policy = package.Policy.load(first / "policy.json")
    assert len(policy) == len(policy.temperatures or ()) == 4
    record = json.loads((first / "run.json").read_text())
    assert record["split"]["search"] + record["split"]["held_out"] == 240
    assert record["origin"]["model"] == model
    done = relook.refused("search", *sources, "--out", first, *QUICK, "--seed", "1")
    assert "seed: 0 there, 1 here" in done.err  # a directory is never shared unknowingly
    assert done.err.count("\n") == 1


def test_python_and_the_command_line_find_the_same_policy(
    relook: Relook, sources: Words, model: str, data: str, tmp_path: Path
) -> None:
    relook.ok("search", *sources, "--out", tmp_path / "run", *QUICK)
    digits = load_data(data)
    network, images = load_small(model.removeprefix("small@")), (digits.plain, digits.labels)
    quick: Any = {"recipe": "small", "pool_size": 12, "length": 4, "batch": 64}
    with pytest.warns(UserWarning, match="images"):
        found = package.search(network, *images, classes=digits.classes, **quick)
    written = package.Policy.load(tmp_path / "run" / "policy.json")
    assert written.preparation is not None  # only a source knows how it prepared images
    assert found.policy == replace(written, preparation=None)
    assert "held-out cLL" in found.comparison.verdict.sentence


def test_the_papers_strategy_draws_fresh(relook: Relook, sources: Words, tmp_path: Path) -> None:
    out = tmp_path / "run"
    relook.ok("search", *sources, "--out", out, "--strategy", "paper", *QUICK)
    assert json.loads((out / "run.json").read_text())["settings"]["draws"] == "fresh"


def test_the_held_out_images_were_never_searched_on(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    command = ("search", *sources, "--out", tmp_path / "run", *QUICK)
    shown = json.loads(relook.ok(*command, "--group", "patient", "--json").out)
    assert shown["held_out"]["images"] == pytest.approx(80, abs=8)
    assert len(shown["picks"]) == 4
    assert shown["policy"]["subpolicies"]


def test_a_test_set_has_groups_too(relook: Relook, sources: Words, tmp_path: Path) -> None:
    others, file = load_data("digits").subset(np.arange(300, 360)), tmp_path / "test.npz"
    patient = np.arange(60) // 3
    np.savez(file, images=others.plain.numpy(), labels=others.labels, patient=patient)
    test = ("--test", f"npz:{file}?layout=nchw", "--group", "patient")
    relook.ok("search", *sources, "--out", tmp_path / "run", *test, *QUICK)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    grouped = replace(load_data(f"npz:{file}?layout=nchw"), groups=patient)
    assert record["test"]["fingerprint"] == grouped.fingerprint


def test_a_race_tells_what_it_saved(
    relook: Relook, model: str, sources: Words, tmp_path: Path
) -> None:
    command = ("search", "--model", model, "--data", "digits", "--recipe", "small", "--race")
    sizes = ("--pool-size", "40", "--length", "4", "--split", "440:200")
    done = relook.ok(*command, *sizes, "--out", tmp_path / "run", "--json")
    race = json.loads(done.out)["race"]
    passes, left = race["passes"], race["rounds"][-1]["candidates"]
    assert passes < race["full_passes"] == 40 * 440
    assert f"race: {passes:,} of 17,600 model passes" in done.err
    assert f"{left} of 40 candidates left" in done.err
    done = relook.ok("search", *sources, "--out", tmp_path / "few", "--race", *QUICK)
    assert "race: 160 search images are too few for one" in done.err


def test_dry_run_tells_the_cost_and_writes_nothing(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = relook.ok("search", *sources, "--out", out, "--dry-run", *QUICK)
    assert "12 candidates × 160 images" in done.out
    assert "model passes" in done.out
    assert not out.exists()


def test_the_recipe_is_chosen_by_the_images_said_and_recorded(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    command = ("search", *sources, "--length", "2", "--out", tmp_path / "r")
    said = "recipe small: grey images of 32 pixels (--recipe to choose)"
    tried = relook.ok(*command, "--dry-run", "--json")
    assert tried.err.splitlines()[0] == said
    cost = json.loads(tried.out)
    assert (cost["recipe"], cost["engine"], cost["candidates"]) == ("small", "torch", 80)
    assert relook.ok(*command, "--exclude", "rotate").err.splitlines()[0] == said
    settings = json.loads((tmp_path / "r" / "run.json").read_text())["settings"]
    assert (settings["recipe"]["name"], settings["pool_size"]) == ("small", 80)
    assert "rotate" not in settings["recipe"]["transforms"]
    assert said not in relook.refused(*command, "--recipe", "small").err  # rotate is left out there


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("--data", "npz:nowhere.npz"), "no such file"),
        (("--data", "folders:x"), "unknown data source"),
        (("--model", "smal@x"), "small"),
        (("--recipe", "cifr"), "did you mean 'cifar'"),
        (("--exclude", "rotatoin"), "did you mean 'rotate'"),
        (("--draws", "frozen"), "expected fixed or fresh"),
        (("--objective", "f1"), "unknown objective"),
        (("--holdout", "1.5"), "share"),
        (("--holdout", "nan"), "share"),
        (("--holdout", "0.01"), "hold out a larger share"),
        (("--mean", "a,b"), "--mean: expected a number"),
        (("--mean", "0.1,0.2,0.3"), "leave them out"),
        (("--group", "hospital"), "hospital"),
        (("--outputs", "scores"), "leave them out"),
        (("--strategy", "stedy"), "unknown strategy 'stedy'"),
    ],
)
def test_each_mistake_is_one_line_with_exit_code_2(
    relook: Relook, model: str, data: str, tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    usual = {"--model": model, "--data": data, "--out": tmp_path / "run", "--recipe": "small"}
    flat = [part for pair in {**usual, **dict([change])}.items() for part in pair]
    done = relook.refused("search", *flat, "--pool-size", "4", "--length", "2")
    assert message in done.err
    assert len([line for line in done.err.splitlines() if line.startswith("error:")]) == 1


def test_mistakes_are_found_before_anything_is_predicted(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    sources = ("search", "--model", model, "--data", data, "--out", tmp_path / "run", *QUICK)
    same = relook.refused(*sources, "--test", data)
    assert "240 of its 240 images" in same.err
    wrong = relook.refused(*sources, "--objective", "f1")
    digits = load_data(data)
    labels = digits.labels + (digits.labels == 9) * 5
    np.savez(tmp_path / "more.npz", images=digits.plain.numpy(), labels=labels)
    more = relook.refused("search", "--model", model, "--data", f"npz:{tmp_path}/more.npz", *QUICK)
    assert "got 15 in" in more.err
    for done in (same, wrong, more):
        assert "predicting" not in done.err
    assert not (tmp_path / "run").exists()


def test_searched_images_under_another_name_are_noticed(
    relook: Relook, model: str, data: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    relook.ok("search", "--model", model, "--data", data, "--out", out, *QUICK)
    digits = load_data(data)
    some = tmp_path / "some.npz"
    np.savez(some, images=digits.plain[:60].numpy(), labels=digits.labels[:60])
    sources = ("--model", model, "--data", f"npz:{some}", "--policy", out / "policy.json")
    done = relook.ok("compare", *sources, "--out", tmp_path / "compared", "--budgets", "1")
    record = json.loads((out / "run.json").read_text())
    held_out, _ = stratified_split(digits.labels, record["settings"]["holdout"], 0)[::-1]
    left = int((held_out < 60).sum())
    assert f"{left} of its 60 images are used; the policy" in done.err
    assert f"{left} held-out images" in done.out


def test_select_picks_from_predictions_made_elsewhere(relook: Relook, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 60)
    probabilities = generator.dirichlet(np.ones(3), (5, 60))
    probabilities[2] = 0.05
    probabilities[2][np.arange(60), labels] = 0.9
    np.save(tmp_path / "p.npy", probabilities.astype(np.float32))
    (tmp_path / "labels.txt").write_text("\n".join(map(str, labels)))
    files = ("--predictions", tmp_path / "p.npy", "--labels", tmp_path / "labels.txt")
    command = ("policy", "select", *files)
    done = relook.ok(*command, "--kind", "probabilities", "--length", "3", "--json")
    assert json.loads(done.out)["picks"][0] == 2
    assert "expected log-probabilities" in relook.refused(*command, "--kind", "log_probs").err


def test_calibrate_gives_a_frozen_policy_temperatures(
    relook: Relook, sources: Words, tmp_path: Path
) -> None:
    pool = package.sample_pool("small", 4, draws="fresh")
    policy = package.Policy(pool, recipe="small").freeze(seed=2)
    policy.save(tmp_path / "policy.json")
    out = tmp_path / "calibrated.json"
    command = ("calibrate", *sources, "--policy", tmp_path / "policy.json")
    relook.ok(*command, "--out", out)
    calibrated = package.Policy.load(out)
    assert calibrated.subpolicies == policy.subpolicies
    assert len(calibrated.temperatures or ()) == 4
    relook.refused(*command, "--out", out)


def test_calibrate_learns_the_view_temperature_unless_told_to_keep_it(
    relook: Relook, sources: Words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibrate, "choose_view_temperature", lambda *_: 3.0)
    path, out = tmp_path / "policy.json", tmp_path / "calibrated.json"
    package.Policy(package.sample_pool("small", 3), recipe="small", view_temperature=4).save(path)
    command = ("calibrate", *sources, "-p", path, "--out", out, "--force")
    for options, kappa, told in (
        ((), 3, "view temperature 3 (was 4)"),
        (("--weights", "always"), 3, "view temperature 3 (was 4)"),
        (("--keep-view-temperature",), 4, "view temperature 4"),
    ):
        assert told in relook.ok(*command, *options).out.splitlines()
        assert package.Policy.load(out).view_temperature == kappa


def test_version_and_help(relook: Relook) -> None:
    assert relook("--version").out == f"relook {package.__version__}\n"
    for verb in (*VERBS, *GROUPS):
        assert f"relook {verb}" in relook.ok(*verb.split(), "--help").out


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_verb_says_where_it_went(relook: Relook, old: str, new: str) -> None:
    assert f"relook {old} is now  relook {new}" in relook.refused(old, "--help").err
    assert new in VERBS
