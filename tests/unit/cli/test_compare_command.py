import csv
import json
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.support import refused
from tests.unit.cli.command_line import relook
from tests.unit.policy_search.searched_run import SearchedRun, searched_run
from tests.unit.report.example_run import example_comparison
from typer.testing import Result

from relook.cli.compare import _picked_text
from relook.cli.shared.inputs import BALANCE_NOTE, PolicySource
from relook.cli.shared.options import NetworkOptions, ReadingOptions
from relook.cli.shared.sources import RunOrPolicy
from relook.data import load_data
from relook.errors import RunError
from relook.evaluation.baselines import BASELINES
from relook.evaluation.comparison import Comparison, load_comparison
from relook.evaluation.frontier import pick
from relook.policy import Policy, SubPolicy
from relook.policy.recipes import RECIPES

compare = partial(relook, "compare")


def relook_compare(*arguments: object) -> Result:
    """Compare few methods at few budgets."""
    return compare(*arguments, "--methods", "flip,cf", "--budgets", "1,2,3")


def compared(directory: Path) -> Comparison:
    return load_comparison(directory / "comparison.json")


def search_was(run: SearchedRun, **settings: object) -> None:
    """Change what is recorded of a search."""
    record = json.loads((run.path / "run.json").read_text())
    record["settings"] |= settings
    (run.path / "run.json").write_text(json.dumps(record))


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


def test_a_run_is_compared_on_its_held_out_images(run: SearchedRun, tmp_path: Path) -> None:
    table, tex = tmp_path / "rows.csv", tmp_path / "table.tex"
    result = relook_compare(run.path, "--csv", table, "--latex", tex)
    assert result.exit_code == 0
    comparison = compared(run.path)
    assert comparison.images == len(run.held_out) == 30
    assert {row.method for row in comparison.rows} == {"plain", "flip", "cf", "gps"}
    assert {one.index for one in comparison.gained} <= set(run.held_out.tolist())
    assert set(comparison.gallery) <= set(run.held_out.tolist())
    with np.load(run.path / "examples.npz") as examples:
        places = examples["indices"]
        np.testing.assert_array_equal(examples["images"], run.dataset.plain[places].numpy())
    assert "\nrandom crops  " in result.stdout  # a preset goes by its name
    assert " ".join(result.stdout.split()).endswith(comparison.verdict.sentence)
    assert "only its 30 held-out images are used" in result.stderr
    with table.open(newline="") as file:
        written = {(line["method"], line["budget"]) for line in csv.DictReader(file)}
    assert written == {(row.method, str(row.budget)) for row in comparison.rows}
    assert r"\begin{tabular}" in tex.read_text()
    settings = comparison.settings
    assert settings["recipe"] == "small"  # that of the search
    assert settings["model"]["spec"] == run.model
    assert settings["data"] == {
        "name": run.dataset.name,
        "fingerprint": run.dataset.subset(run.held_out).fingerprint,
        "images": 30,
        "spec": run.data,
    }
    assert "compare" in settings["command"] or "relook" in settings["command"]


def test_a_fuller_comparison_is_kept_unless_told(run: SearchedRun) -> None:
    relook_compare(run.path)
    fuller = (run.path / "comparison.json").read_bytes()
    narrower = (run.path, "--methods", "cf", "--budgets", "2")
    result = compare(*narrower, "--json")
    assert "comparison.json has more views or methods and is kept; --out" in result.stderr
    assert json.loads(result.stdout)["out"] == str(run.path / "narrower")
    assert (run.path / "comparison.json").read_bytes() == fuller
    written = load_comparison(run.path / "narrower" / "comparison.json")
    assert {row.method for row in written.rows} == {"plain", "cf", "gps"}
    compare(*narrower, "--out", run.path)
    assert compared(run.path).budgets == (2,)


def test_a_mistake_noted_by_the_search_is_said_unless_the_set_up_is_given(run: SearchedRun) -> None:
    record = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**record, "set_up": "check mean and std"}))
    said = ". First check the set-up: check mean and std. "
    assert said in " ".join(compare(run.path, "--methods", "cf").stdout.split())
    given = compare(run.path, "--methods", "cf", "--outputs", "logits")
    assert "First check" not in given.stdout


def test_what_a_comparison_takes_is_said_before_it_starts(run: SearchedRun) -> None:
    few = ["--methods", "cf,mgrid", "--grid-views", "2"]
    tried = compare(run.path, *few, "--dry-run")
    searched = len(run.dataset) - len(run.held_out)
    grid = 12 * 2 * searched
    assert f"{grid:,} of them for MGrid's magnitude: about " in tried.stderr
    assert tried.stdout == ""
    assert not (run.path / "comparison.json").exists()
    assert " % of them are for mgrid, which --methods cf leaves out" in tried.stderr
    cost = json.loads(relook_compare(run.path, "--dry-run", "--json").stdout)
    assert "leaves out" not in relook_compare(run.path, "--dry-run").stderr
    assert list(cost["baselines"]) == ["cf", "flip"]  # the costliest first
    assert cost["grid_passes"] == 0  # as flip and cf need none
    assert "model passes at most: about " in relook_compare(run.path).stderr


def test_the_engine_of_the_search_is_used_and_recorded(run: SearchedRun) -> None:
    def engine(*options: str) -> str:
        relook_compare(run.path, *options)
        return str(compared(run.path).settings["model"]["engine"])

    assert engine() == "torch"  # a search of before there were others
    search_was(run, accelerate="auto")
    relook_compare(run.path, "--dry-run")
    assert not (run.path / "engine.json").exists()
    assert engine() == "torch"  # seconds of work
    (run.path / "engine.json").write_text('{"engine": "channels-last"}')
    assert engine() == "channels-last"
    assert engine("--accelerate", "torch") == "torch"


def test_the_policys_own_data_are_recognised_without_the_run(
    run: SearchedRun, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    sources = ("--model", run.model, "--data", run.data, "--policy", run.policy)
    result = relook_compare(*sources, "--out", out)
    assert "only its 30 held-out images are used" in result.stderr
    relook_compare(run.path)
    cll = [[row.metrics["cll"].mean for row in compared(path).rows] for path in (out, run.path)]
    assert cll[0] == cll[1]


@pytest.mark.parametrize("own", [True, False])
def test_other_images_and_a_searchs_test_set_are_used_whole(tmp_path: Path, own: bool) -> None:
    run = searched_run(tmp_path, test="digits:train" if own else None)
    given = () if own else ("--data", "digits:train")
    result = relook_compare(run.path, *given, "--out", tmp_path / "out")
    assert "held-out images are used" not in result.stderr
    assert compared(tmp_path / "out").images == len(load_data("digits:train"))


def test_a_balanced_search_is_compared_by_balanced_figures(run: SearchedRun) -> None:
    def asked(*options: str) -> tuple[bool, str]:
        relook_compare(run.path, *options)
        settings = compared(run.path).settings
        return settings["balanced"], settings["protocol"]

    assert asked() == (False, "standard")
    search_was(run, balanced=True)
    assert asked() == (True, "standard")
    assert asked("--no-balanced", "--protocol", "paper") == (False, "paper")
    refused("unknown protocol 'papers'", relook_compare, run.path, "--protocol", "papers")


def test_where_classes_are_not_balanced_as_searched_it_is_said(
    run: SearchedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("relook.cli.shared.inputs.say", told.append)
    source = PolicySource(
        source=RunOrPolicy(run.path), reading=ReadingOptions(), network=NetworkOptions()
    )
    source.read().note_balance()
    assert BALANCE_NOTE not in told
    search_was(run, balanced=True)
    source.read().note_balance()
    assert told[-1] == BALANCE_NOTE


def test_the_best_for_a_budget_is_picked(run: SearchedRun) -> None:
    result = relook_compare(run.path, "--budget-views", "1")
    content = json.loads(relook_compare(run.path, "--json", "--budget-views", "2").stdout)
    saved = json.loads((run.path / "comparison.json").read_text())
    assert {key: content[key] for key in saved} == saved
    assert content["out"] == str(run.path)
    assert content["picked"]["views"] <= 2
    best = pick(compared(run.path), budget_views=1)
    cll = f"{best.metrics['cll'].mean:.4f}".replace("-", "−")
    why = "(nothing affordable shows a gain over it)"
    assert f"Picked: {best.label} with 1 view {why}: cLL {cll}, accuracy " in result.stdout


def test_what_is_picked_says_why_it_may_differ_from_the_verdict() -> None:
    whole = example_comparison()
    best = pick(whole, budget_views=5)
    assert best.views > 1
    why = f"with {best.views} views (the fewest views within 0.001 cLL of the best affordable): "
    text, advised = _picked_text(whole, best), whole.recommended
    assert f"{why}cLL −" in text
    assert (best.method, best.views) == (advised.method, advised.views)
    assert "The verdict" not in text
    fewer = pick(whole, budget_views=advised.views - 1)
    assert _picked_text(whole, fewer).endswith(
        f" The verdict, which has no such limit, advises {advised.label} with "
        f"{advised.views} views."
    )


def test_the_same_command_again_predicts_nothing_anew(run: SearchedRun) -> None:
    relook_compare(run.path)
    chunks = [one for one in run.path.glob("compare-*.zarr/c/**/*") if one.is_file()]
    times = [one.stat().st_mtime_ns for one in chunks]
    relook_compare(run.path)
    assert chunks
    assert [one.stat().st_mtime_ns for one in chunks] == times
    # Another question does not meet the first one's predictions.
    assert relook_compare(run.path, "--seed", "3").exit_code == 0
    assert len(list(run.path.glob("compare-*.zarr"))) == 2


def test_several_policies_count_as_runs(run: SearchedRun, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    BASELINES["cf"].policy(RECIPES["small"], 3, seed=11).save(other)
    relook_compare("--run", run.path, "--policy", run.policy, "--policy", other)
    row = compared(run.path).row("gps", 3)
    assert row is not None
    assert row.metrics["cll"].deviation > 0


def test_validation_images_bring_mgrid_in(run: SearchedRun, tmp_path: Path) -> None:
    compare("--run", run.path, "--methods", "mgrid", "--budgets", "2", "--grid-views", "1")
    settings = compared(run.path).settings
    assert settings["grid_search"] is not None
    assert settings["validation"] == run.dataset.subset(run.search).fingerprint


def test_what_is_left_out_is_said(run: SearchedRun, tmp_path: Path) -> None:
    few = ("--budgets", "1", "--methods", "mgrid,10c")
    result = compare("--run", run.path, "--data", "digits:train", *few, "--out", tmp_path / "out")
    assert "left out: mgrid: no validation images" in result.stderr
    assert "left out: 10c: takes 10 views" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "or else --model and --data and a policy file"),
        (["--model", "small@x"], "or else --data and a policy file"),
        (["--run", "nowhere"], "expected a finished run"),
        (["nowhere"], "nowhere: expected the directory of a search, or a policy file"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str], message: str) -> None:
    refused(message, relook_compare, *arguments)


def test_a_wrong_method_is_said_before_anything_is_read() -> None:
    for wrong, right in (("mgird", "mgrid"), ("MGrid", "mgrid"), ("CF", "cf")):
        message = f"unknown method {wrong!r}: did you mean {right!r}"
        refused(message, compare, "nowhere", "--methods", wrong)


def test_budgets_are_whole_numbers(run: SearchedRun) -> None:
    message = "--budgets: expected whole numbers like 1,5,10,20"
    refused(message, compare, "--run", run.path, "--budgets", "1,two")


def test_a_policy_without_a_recipe_needs_one(run: SearchedRun, tmp_path: Path) -> None:
    bare = tmp_path / "bare.json"
    Policy((SubPolicy(),)).save(bare)
    sources = ("--model", run.model, "--data", "digits:train", "--policy", bare)
    refused("give --recipe", relook_compare, *sources, "--out", tmp_path / "out")
    assert relook_compare(*sources, "--out", tmp_path / "out", "--recipe", "small").exit_code == 0


def test_someone_elses_directory_is_not_written_to(run: SearchedRun, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("mine")
    message = "expected a relook run or an empty directory"
    refused(message, relook_compare, run.path, "--out", foreign, error=RunError)
    assert [path.name for path in foreign.iterdir()] == ["thesis.txt"]


def test_a_gate_is_an_exit_code_and_a_line_each(run: SearchedRun, tmp_path: Path) -> None:
    asked = ("--require", "views<=20", "--require", "cll>=9 against best", "--require", "cll<=9")
    junit = tmp_path / "gate.xml"
    result = relook_compare(run.path, *asked, "--junit", junit)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()[-3:]
    assert [line.partition(":")[0] for line in lines] == ["met", "not met", "met"]
    suite = ElementTree.parse(junit).getroot()  # noqa: S314  # we have just written it
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    cases = suite.findall("testcase")
    assert [one.get("name") for one in cases] == list(asked[1::2])
    assert [one.find("failure") is not None for one in cases] == [False, True, False]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.get("message") == lines[1]
    former = tmp_path / "former.json"
    former.write_bytes((run.path / "comparison.json").read_bytes())
    same = relook_compare(run.path, "--json", "--require", f"cll>=0 against {former}")
    assert same.exit_code == 0
    (required,) = json.loads(same.stdout)["required"]
    assert required["met"]
    assert "the lower end of ±0.0000 [±0.0000, ±0.0000]" in required["found"]


def test_a_gate_that_cannot_be_read_is_said_before_any_work(run: SearchedRun) -> None:
    refused("such as helps, 'cll>=0.01'", relook_compare, run.path, "--require", "better")
    refused("expected --require with --junit", relook_compare, run.path, "--junit", "gate.xml")
    assert not (run.path / "comparison.json").exists()


def test_foreign_images_are_told_or_too_few(run: SearchedRun, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 1, 32, 32), dtype=np.uint8)
    for name, part in (("noise", noise), ("few", noise[:5])):
        np.savez(tmp_path / f"{name}.npz", images=part)  # which needs no labels
    result = relook_compare(run.path, "--ood", f"npz:{tmp_path / 'noise.npz'}")
    assert "Foreign images: by the policy's confidence an AUROC of " in result.stdout
    comparison = compared(run.path)
    scores = ("max_probability", "entropy")
    found_of = [(one.method, one.score) for one in comparison.ood]
    both = [(method, score) for method in ("plain", "policy") for score in scores]
    assert found_of == [*both, ("policy", "mutual_information")]
    found = comparison.results().one(metric="auroc", method="gps", by="entropy")
    assert found.value == comparison.ood[3].auroc
    assert comparison.ood[2].over_plain is not None
    gain = comparison.ood[2].auroc - comparison.ood[0].auroc
    assert comparison.ood[2].over_plain.estimate == pytest.approx(gain)
    few = f"npz:{tmp_path / 'few.npz'}"
    refused("at least 20 foreign images, got 5", relook_compare, run.path, "--ood", few)
