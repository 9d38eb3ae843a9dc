import json
import shutil
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from tests.support import refused
from tests.unit.cli import command_line

import relook
from relook.data import load_data
from relook.io.identities import is_in
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.report import write_report
from relook.report.deployed_tables import sets_table
from relook.report.run_files import read_run
from relook.report.tables import terminal

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:the model takes"),
]

QUICK: Any = {"pool_size": 6, "length": 3, "progress": False}
conformal = partial(command_line.relook, "conformal")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two searches, one of which leaves images out, and images beyond both."""
    directory = tmp_path_factory.mktemp("runs")
    digits = load_data("digits:test")
    for name, part in (("digits", slice(0, 300)), ("others", slice(300, 400))):
        images, labels = digits.plain.numpy()[part], digits.labels[part]
        np.savez(directory / f"{name}.npz", images=images, labels=labels)
    save_small(new_small(width=4), directory / "m.safetensors")
    model, data = f"small@{directory}/m.safetensors", f"npz:{directory}/digits.npz"
    for name, split in (("run", "0.4:0.3"), ("whole", "0.5:0.5")):
        relook.search(model, data, out=directory / name, split=split, **QUICK)
    return directory


def test_images_that_the_search_left_out_set_the_threshold_and_the_proofs_show_it(
    runs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.json"
    done = conformal(runs / "run", "--out", out, "--method", "policy")
    assert "90 images to set the threshold, 90 to evaluate the sets" in done.stderr
    assert "% of the sets contain the true class (asked for: 90 %)" in done.stdout
    assert "relook export" in done.stderr
    policy = Policy.load(out)
    assert policy.sets is not None
    assert (policy.sets.score, policy.sets.coverage, policy.sets.penalty) == ("aps", 0.9, 0)
    digits, before = load_data(f"npz:{runs}/digits.npz"), Policy.load(runs / "run/policy.json")
    new = is_in(digits.identities, policy.seen) & ~is_in(digits.identities, before.seen)
    assert new.sum() == 90
    # Exactly ⌈91 · 0.9⌉ of the images that set the threshold are covered.
    tta = relook.TTA(f"small@{runs}/m.safetensors", out)
    sets = tta.predict_set(digits.images)[new]
    assert sets[np.arange(90), digits.labels[new]].sum() >= 82
    refused("out exists|exists: give another", conformal, runs / "run", "--out", out)


def test_sets_of_one_class_each_ask_for_more_coverage(runs: Path, tmp_path: Path) -> None:
    how = (runs / "run", "--method", "policy", "--out")
    done = conformal(*how, tmp_path / "p.json", "--coverage", 0.02)
    assert "every set has one class, as the accuracy (" in done.stdout
    assert "ask for more, as coverage=0.95 (--coverage 0.95)" in done.stdout
    assert "every set" not in conformal(*how, tmp_path / "q.json", "--coverage", 0.9).stdout


def test_json_has_the_whole_report(runs: Path, tmp_path: Path) -> None:
    words = ("--out", tmp_path / "p.json", "--score", "lac", "--coverage", 0.8, "--json")
    found: dict[str, Any] = json.loads(conformal(runs / "run", *words).stdout)
    report = found["report"]
    assert report["images"] == sum(part["images"] for part in report["parts"]) == 90
    figures = report["figures"]
    one = figures["coverage"]
    assert one["low"] < one["estimate"] < one["high"]
    change = figures["size"]["estimate"] - figures["plain_size"]["estimate"]
    assert figures["size_change"]["estimate"] == pytest.approx(change)
    assert found["policy"]["sets"]["score"] == "lac"
    assert found["images"] == 90
    assert 0 < found["coverage_deviation"] < 0.1


def test_other_images_set_the_threshold_where_none_were_left(runs: Path, tmp_path: Path) -> None:
    none_left = "the search has neither used nor held out, got none: search with  --split 0.4:0.3"
    refused(none_left, conformal, runs / "whole", "--out", tmp_path / "p.json")
    there = tmp_path / "there.json"  # that it exists is not what is wrong first
    there.write_text("{}")
    refused(none_left, conformal, runs / "whole", "--out", there)
    again = ("--data", f"npz:{runs}/digits.npz", "--out", tmp_path / "p.json")
    refused("300 of its 300 images .* search with  --split", conformal, runs / "whole", *again)
    others = ("--data", f"npz:{runs}/others.npz", "--out", tmp_path / "p.json")
    done = conformal(runs / "whole", *others, "--views", 2)
    assert "100 images to set the threshold, 150 to evaluate" in done.stderr
    # Without a run there is nothing to show it on.
    alone = tmp_path / "alone.json"
    Policy.load(runs / "run/policy.json").save(alone)
    model = ("--model", f"small@{runs}/m.safetensors")
    done = conformal(alone, *model, *others[:2], "--score", "raps", "--free", 2)
    assert "no other images to measure coverage and size on" in done.stdout
    sets = Policy.load(tmp_path / "alone.sets.json").sets
    assert sets is not None
    assert (sets.score, sets.free) == ("raps", 2)


def test_what_cannot_be_made_is_refused_before_images_are_predicted(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relook.deploy.tta.view_plan.ViewPlan.predict", None)
    words = (runs / "run", "--out", tmp_path / "p.json")
    refused("takes at least 999 images that nothing", conformal, *words, "--coverage", 0.999)
    refused("at least 19 images of 0 ", conformal, *words, "--coverage", 0.95, "--per-class")
    found = relook.load(runs / "whole")  # which has no images for sets either
    refused("coverage: expected a share", found.conformal, coverage=90, progress=False)


def test_too_few_images_are_refused_with_how_many_it_takes(runs: Path, tmp_path: Path) -> None:
    words = (runs / "run", "--out", tmp_path / "p.json")
    refused("takes at least 999 images that nothing", conformal, *words, "--coverage", 0.999)
    refused("at least 19 images of 0 ", conformal, *words, "--coverage", 0.95, "--per-class")
    refused("unknown score 'ap'", conformal, *words, "--score", "ap")
    conformal(*words[:1], "--method", "plain")
    share = "coverage: expected a share between 0 and 1, as 0.9 for 90 %, got 90.0"
    refused(share, conformal, runs / "run", "--coverage", 90)  # though policy.sets.json exists
    assert not (tmp_path / "p.json").exists()


def test_python_makes_the_same_sets(runs: Path, tmp_path: Path) -> None:
    conformal(runs / "run", "--out", tmp_path / "p.json", "--method", "policy", "--coverage", 0.8)
    found = relook.load(runs / "run").conformal(coverage=0.8, method="policy", progress=False)
    assert found.policy == Policy.load(tmp_path / "p.json")
    images = load_data(f"npz:{runs}/others.npz").images
    sets = found.tta().predict_set(images)
    assert sets.shape == (100, 10)
    others = f"npz:{runs}/others.npz"
    more = relook.load(runs / "whole").conformal(others, score="lac", progress=False)
    assert more.policy.sets is not None
    whole = relook.load(runs / "whole")
    refused("got none: search with  split=", whole.conformal, progress=False)
    refused("300 of its 300", whole.conformal, f"npz:{runs}/digits.npz", progress=False)


def test_the_report_has_what_sets_are_worth(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "run", run)
    conformal(run, "--out", tmp_path / "p.json", "--method", "policy")
    kept = read_run(run).sets
    assert kept is not None
    assert (kept.score, kept.coverage, kept.images, kept.report.images) == ("aps", 0.9, 90, 90)
    text = write_report(run, figures=False).read_text()
    assert '<section id="sets">' in text
    assert "90 images set the threshold, 90 others show what they are worth" in text
    shown = StringIO()
    console = Console(width=80, file=shown)
    console.print(terminal(sets_table(kept.report), console))
    assert "…" not in shown.getvalue()
    assert "change: size − plain size" in " ".join(shown.getvalue().split())
    assert "size, views − plain" in text
    written = (run / "sets.json").read_bytes()
    (run / "sets.json").unlink()
    relook.load(run).conformal(method="policy", progress=False)
    assert (run / "sets.json").read_bytes() == written
    content = json.loads(written)
    (run / "sets.json").write_text(json.dumps({**content, "policy": "another"}))
    assert read_run(run).sets is None


def test_the_plain_image_is_not_compared_with_itself(runs: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs / "run", run)
    plain = (run, "--out", tmp_path / "p.json", "--method", "plain", "--force")
    shown = conformal(*plain).stdout
    assert "the sets are the plain image's: there is nothing to compare" in shown
    assert "compared with" not in shown
    assert "change" not in shown
    report: dict[str, Any] = json.loads(conformal(*plain, "--json").stdout)["report"]
    assert report["of_plain"]
    assert report["figures"]["size_change"]["estimate"] == 0
    text = write_report(run, figures=False).read_text()
    assert "The sets are the plain image's (score: aps), so there is nothing" in text
    assert "views − plain" not in text


def test_images_that_the_views_were_learned_on_show_nothing(runs: Path, tmp_path: Path) -> None:
    model, others = f"small@{runs}/m.safetensors", f"npz:{runs}/others.npz"
    how = {"out": tmp_path / "run", "cross_fit": True, **QUICK}
    found = relook.search(model, f"npz:{runs}/digits.npz", **how)
    done = conformal(tmp_path / "run", "--data", others, "--method", "policy")
    assert "100 images to set the threshold\n" in done.stderr
    assert "no other images to measure coverage and size on" in done.stdout
    found.conformal(others, method="policy", progress=False)
    assert not (tmp_path / "run" / "sets.json").exists()


def test_a_run_whose_images_are_gone_makes_sets_of_others(runs: Path, tmp_path: Path) -> None:
    digits, model = load_data(f"npz:{runs}/digits.npz"), f"small@{runs}/m.safetensors"
    relook.search(model, digits.images, digits.labels, out=tmp_path / "run", **QUICK)
    with pytest.warns(relook.RelookWarning, match="report has no section on these sets: .* memory"):
        found = relook.load(tmp_path / "run").conformal(f"npz:{runs}/others.npz", progress=False)
    assert found.policy.sets is not None
    assert not (tmp_path / "run" / "sets.json").exists()
