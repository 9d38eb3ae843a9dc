import csv
import json
from pathlib import Path

import pytest
from tests.e2e.conftest import SMALL, Relook, Words

from relook.data import load_data
from relook.deploy.early_exit.rule import EarlyExit
from relook.deploy.tta import TTA
from relook.models import load_model
from relook.policy import Policy
from relook.policy.pool import sample_pool


def test_a_rule_is_learned_reported_and_runs(
    relook: Relook, sources: Words, model: str, data: str, policy: Path, tmp_path: Path
) -> None:
    common = ("early-exit", policy, *sources, "--target", "views=2.5")
    done = relook.ok(*common)
    assert "120 images to learn on, 120 to report on" in done.err
    assert "views per image instead of 4" in done.out
    rule = EarlyExit.load(tmp_path / "early-exit.json")
    assert rule.target == "views=2.5"
    assert 1 <= rule.mean_views <= 2.5
    report = json.loads((tmp_path / "early-exit-report.json").read_text())
    assert report["images"] == sum(report["exits"]) == 120
    figures = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert figures == [
        f"early_exit_{metric}.{kind}" for metric in ("accuracy", "cll") for kind in ("png", "svg")
    ]
    assert "--force" in relook.refused(*common).err
    same = relook(*common, "--force", "--json", "--no-figures")
    assert json.loads(same.out)["own"] == report["own"]
    tta = TTA(load_model(model), policy, early_exit=tmp_path / "early-exit.json")
    exited = tta.exit_early(load_data(data).plain)
    learned_and_reported = 120 * rule.mean_views + 120 * report["own"]["views"]
    assert exited.views.sum() == pytest.approx(learned_and_reported, abs=2)
    predicted = relook(
        *("predict", "-m", model, "-p", policy, "-d", data, "-o", tmp_path / "out.csv"),
        *("--early-exit", tmp_path / "early-exit.json"),
    )
    assert "at most 4 views each" in predicted.err
    rows = csv.DictReader((tmp_path / "out.csv").read_text().splitlines())
    assert [int(row["views"]) for row in rows] == exited.views.tolist()


def test_a_policy_needs_no_recipe(relook: Relook, model: str, data: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    Policy(sample_pool("small", 5, 0)[:3]).save(path)
    common = ("early-exit", "-m", model, "-p", path, "-d", data, "--no-figures")
    done = relook.ok(*common, "--target", "views=2")
    assert "images that the rule was not found on" in done.out  # of the search, nobody knows


def test_a_run_gives_only_images_that_its_search_has_not_seen(
    relook: Relook, sources: Words, policy: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    relook.ok("search", *sources, *SMALL, "--out", run, "--split", "80:160")
    longer = policy.rename(run / "longer.json")
    common = ("early-exit", "--run", run, "--policy", longer, "--target", "views=2")
    done = relook.ok(*common, "--learn-share", 0.75)
    assert "120 images to learn on, 40 to report on" in done.err
    assert (run / "early-exit.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--target", "accuracy-loss=0.005"), "at least 1,078 are needed"),
        (("--target", "much"), "expected accuracy-loss=SHARE"),
        (("--target", "views=9"), "at most the policy's 4 distinct views"),
        (("--target", "views=2", "--learn-share", 1.5), "expected a share between 0 and 1"),
    ],
)
def test_what_cannot_be_learned_is_one_line(
    relook: Relook, model: str, data: str, policy: Path, options: tuple[str, ...], message: str
) -> None:
    done = relook.refused("early-exit", "-m", model, "-p", policy, "-d", data, *options)
    assert message in done.err
    assert not (policy.parent / "early-exit.json").exists()
