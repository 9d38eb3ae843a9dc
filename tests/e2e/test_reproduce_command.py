"""`relook study run`, as a user types it: all parts at the smallest size."""

import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.e2e.conftest import Relook
from tests.unit.report.html_reader import read_html

from relook.data import load_data
from relook.models.small import new_small, save_small
from relook.studies.reproduce.file import load_study
from relook.studies.reproduce.plan import make_plan
from relook.studies.reproduce.run import is_done, reproduce

ROOT = Path(__file__).parents[2]

TINY = """
title = "Tiny <b>& quick</b>"
recipe = "small"

[data.digits]
train = "npz:images.npz?layout=nchw"
test = "npz:images.npz?layout=nchw"
split = "40:40"
test_images = 120
train_images = 120

[models.A]
network = "small:4"
members = 2

[models.B]
network = "small:5"

[train]
augments = ["randaugment", "crop_flip"]
epochs = 1
batch = 40
threads = 1

[search]
length = 4
pool_size = 8

[compare]
budgets = [1, 2]
runs = 2

[robustness]
budgets = [2]
corruptions = ["contrast"]
severities = [1, 5]

[transfer]
budgets = [2]

[ensembles]
budgets = [1, 2]

[magnitudes]
views = 1
grid = [0, 20]
"""

TABLES = ("in-domain", "vanilla", "objectives", "robustness", "transfer",
          "ensembles-digits-a-randaugment", "magnitudes", "transforms")  # fmt: skip
FIGURES = ("in-domain", "train-vs-clean", "ood", "transfer", "clean", "temperature", "magnitudes",
           "transforms")  # fmt: skip


@pytest.fixture
def study(tmp_path: Path) -> Path:
    digits = load_data("digits").subset(np.arange(120))
    np.savez(tmp_path / "images.npz", images=digits.plain.numpy(), labels=digits.labels)
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    return path


def marks(out: Path) -> dict[str, int]:
    """When each job was finished, by its directory."""
    found = sorted(out.glob("jobs/*/*/done.json"))
    return {str(path.parent.relative_to(out)): path.stat().st_mtime_ns for path in found}


def test_a_study_makes_every_table_and_figure_and_runs_nothing_twice(
    relook: Relook, study: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert "23 jobs run, 0 done before" in relook.ok("study", "run", study, "--out", out).err
    for name in TABLES:
        for ending in ("md", "csv", "tex"):
            assert (out / "tables" / f"{name}.{ending}").stat().st_size > 40, name
    for name in FIGURES:
        for ending in ("svg", "png"):
            assert (out / "figures" / f"{name}.{ending}").stat().st_size > 1000, name
    assert not list(out.glob("jobs/*/*/predictions"))
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Tiny &lt;b&gt;&amp; quick&lt;/b&gt;" in page
    assert "<script" not in page
    for link in re.findall(r'href="([^"#]+)"', page):
        assert (out / link).is_file(), link
    for link in re.findall(r"\]\(([^)]+)\)", (out / "index.md").read_text(encoding="utf-8")):
        assert (out / link).is_file(), link

    first, pages = marks(out), page
    again = relook("study", "run", study, "--out", out, "--json")
    assert json.loads(again.out)["jobs_run"] == 0
    assert marks(out) == first
    assert (out / "index.html").read_text(encoding="utf-8") == pages

    changed = relook("study", "run", study, "--out", out, "--set", "compare.runs=1", "--json")
    assert json.loads(changed.out)["jobs_run"] == 4
    new = marks(out)
    assert {name: new[name] for name in first} == first
    assert {name.split("/")[1] for name in new.keys() - first.keys()} == {"compare"}

    plan = json.loads(relook("study", "run", study, "--out", out, "--dry-run", "--json").out)
    assert all(job["done"] for job in plan["jobs"])


def test_only_runs_parts_with_what_they_need(relook: Relook, study: Path, tmp_path: Path) -> None:
    out, jobs = tmp_path / "out", tmp_path / "jobs"
    common = ("study", "run", study, "--out", out, "--jobs", jobs, "--set", "models.A.members=1")
    relook.ok(*common, "--only", "search")
    assert sorted(path.name for path in jobs.iterdir() if path.is_dir()) == ["search", "train"]
    assert "still to do" in (out / "index.md").read_text(encoding="utf-8")
    other = relook.refused(*common, "--only", "serch")
    assert "unknown part 'serch': did you mean 'search'?" in other.err


def test_other_weights_half_way_are_refused(relook: Relook, study: Path, tmp_path: Path) -> None:
    trained = re.sub(r"\[models.A\].*\[search\]", "[search]", TINY, flags=re.DOTALL)
    weights = tmp_path / "w.safetensors"
    study.write_text(f'{trained}\n[models.C]\nspec = "small@{weights}"\n', encoding="utf-8")
    quick = ("--set", "compare.methods=['plain', 'cf']", "--set", "compare.runs=1")
    common = ("study", "run", study, "--out", tmp_path / "out", *quick, "--only")
    save_small(new_small(width=4, seed=1), weights)
    relook.ok(*common, "search")
    save_small(new_small(width=4, seed=2), weights)
    other = relook.refused(*common, "compare")
    assert "has changed since search digits-c was done: remove " in other.err
    save_small(new_small(width=4, seed=1), weights)
    relook.ok(*common, "compare")


def test_kept_back_images_train_two_networks(relook: Relook, study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    digits = load_data("digits").subset(np.arange(120, 200))
    np.savez(tmp_path / "test.npz", images=digits.plain.numpy(), labels=digits.labels)
    relook.ok(
        "study", "run", study, "--out", out, "--only", "compare",
        "--set", "data.digits.validation=40",
        "--set", "data.digits.test=npz:test.npz?layout=nchw", "--set", "data.digits.test_images=80",
        "--set", "train.augments=['randaugment']",
    )  # fmt: skip
    for record in out.glob("jobs/train/*/trained.json"):
        content = json.loads(record.read_text())
        assert content["search"] != content["score"]
    for run in out.glob("jobs/search/*/run/run.json"):
        content = json.loads(run.read_text())
        assert content["split"] == {**content["split"], "search": 40, "held_out": 80}
    comparisons = list(out.glob("jobs/compare/*/comparison.json"))
    assert len(comparisons) == 2
    for path in comparisons:
        content = json.loads(path.read_text())
        assert content["images"] == 80
        assert content["settings"]["randaugment"]["grid_magnitude"] in (0, 20)
        assert "mgrid" in {row["method"] for row in content["rows"]}


def test_a_dry_run_lists_jobs_and_writes_nothing(
    relook: Relook, study: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = relook.ok("study", "run", study, "--out", out, "--dry-run")
    assert "search digits-a-randaugment" in done.out
    assert "pools of 8 candidates" in done.out
    assert " of model passes left, measured now on cpu, and some seconds a job" in done.out
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "data.digits.test_images=100"), "expected 100 images, as data.digits.test_im"),
        (("--set", "data.digits.split=100:100"), "data.digits.split: split 100:100: expected"),
        (("--set", "search.strategy=greedi"), "unknown strategy 'greedi': did you mean 'greedy'?"),
        (("--set", "data.digits.train=npz:none.npz"), "none.npz"),
        (("--data", "digit=x"), "did you mean 'digits'?"),
    ],
)
def test_mistakes_are_one_line(
    relook: Relook, study: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = relook.refused("study", "run", study, "--out", tmp_path / "out", *options)
    assert message in done.err.splitlines()[-1]


def quick(study: Path) -> tuple[str, ...]:
    return ("train.augments=['randaugment']", "models.A.members=1")


@pytest.mark.slow
def test_a_killed_study_goes_on_to_the_same_bytes(study: Path, tmp_path: Path) -> None:
    parts, settings = ("compare", "transfer"), quick(study)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    loaded = load_study(study, settings=settings)
    started = time.perf_counter()
    reproduce(loaded, whole, only=parts)
    usual = time.perf_counter() - started
    shares = np.random.default_rng(0)
    for _ in range(4):
        child = os.fork()
        if not child:
            try:
                torch.set_num_threads(1)
                reproduce(loaded, killed, only=parts)
            finally:
                os._exit(0)
        time.sleep(float(shares.uniform(0.05, 0.5)) * usual)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    reproduce(loaded, killed, only=parts)
    plan = make_plan(loaded, parts)
    assert all(is_done(job, killed / "jobs") for job in plan)
    names = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file()]
    same = [
        name
        for name in names
        if name.name in ("policy.json", "transfer.json", "magnitudes.json")
        or name.suffix in (".safetensors", ".csv", ".tex", ".svg")
    ]
    assert len(same) > 12
    for name in same:
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.slow
def test_the_digits_study_makes_all_of_it(relook: Relook, tmp_path: Path) -> None:
    out = tmp_path / "digits"
    relook.ok("study", "run", ROOT / "studies" / "digits.toml", "--out", out)
    figures = {path.stem for path in (out / "figures").glob("*.png")}
    assert figures >= set(FIGURES)
    assert (out / "tables" / "ensembles-digits-wide-randaugment.md").is_file()
    read_html((out / "index.html").read_text(encoding="utf-8"))
    for path in out.glob("jobs/compare/*-randaugment-*/comparison.json"):
        rows = json.loads(path.read_text())["rows"]
        cll = {(row["method"], row["budget"]): row["metrics"]["cll"]["mean"] for row in rows}
        assert cll["gps", 20] > cll["plain", 1]
