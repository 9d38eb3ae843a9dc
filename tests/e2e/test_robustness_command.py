"""`relook study corrupt` and `relook study robustness`, as a user types them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.e2e.conftest import Relook
from tests.unit.data.image_files import write_classes
from tests.unit.policy_search.searched_run import SearchedRun, searched_run

from relook.data import load_data
from relook.studies.corruptions import corrupt_images

QUICK = ("--corruptions", "fog,impulse_noise", "--severities", "1,4", "--budgets", "1,2")
PLAIN = ("--methods", "plain", "--no-figures")


@pytest.fixture
def run(tmp_path: Path) -> SearchedRun:
    return searched_run(tmp_path)


def test_a_run_is_scored_on_its_held_out_images(relook: Relook, run: SearchedRun) -> None:
    done = relook.ok("study", "robustness", run.path, "--methods", "plain,cf", *QUICK)
    assert f"only its {len(run.held_out)} held-out" in done.err
    assert "muCE" in done.out
    assert "impulse noise" in done.out
    content = json.loads((run.path / "robustness.json").read_text())
    assert {row["images"] for row in content["rows"]} == {len(run.held_out)}
    assert content["settings"]["made"] is True
    assert {row["method"] for row in content["rows"]} == {"plain", "cf", "gps"}
    drawn = sorted(path.name for path in (run.path / "figures").iterdir())
    assert drawn == [
        f"robustness_{name}.{kind}" for name in ("corruptions", "views") for kind in ("png", "svg")
    ]


def test_written_corruptions_give_the_same_errors_as_made_ones(
    relook: Relook, run: SearchedRun, tmp_path: Path
) -> None:
    common = ("study", "robustness", "--run", run.path, *PLAIN, *QUICK, "--images", 12)
    made = json.loads(relook(*common, "--json", "--out", tmp_path / "a").out)
    relook.ok("study", "corrupt", "--data", run.data, "--out", tmp_path / "c", *QUICK[:4])
    done = relook.ok(*common, "--json", "--out", tmp_path / "b", "--corrupted", tmp_path / "c")
    read = json.loads(done.out)
    assert read["rows"] == made["rows"]
    assert {row["images"] for row in read["rows"]} == {12}
    assert read["settings"]["made"] is False
    missing = relook.refused(*common, "--corrupted", tmp_path / "c", "--corruptions", "snow")
    assert "expected the file snow.npy" in missing.err


def test_searched_images_are_refused(relook: Relook, run: SearchedRun, tmp_path: Path) -> None:
    done = relook.refused("study", "robustness", "--model", run.model, "--data", run.data)
    assert "a policy file" in done.err


def test_corrupt_writes_an_archive_or_folders(relook: Relook, tmp_path: Path, data: str) -> None:
    one = ("--corruptions", "fog", "--severities", "2", "--seed", "4")
    relook.ok("study", "corrupt", "--data", data, "--out", tmp_path / "fog.npz", *one)
    clean = load_data(data).plain
    found = load_data(f"npz:{tmp_path / 'fog.npz'}").plain
    assert torch.equal(found, corrupt_images(clean, "fog", 2, seed=4))
    write_classes(tmp_path / "pets", "cat", "dog", kind="jpg")
    spec = f"folder:{tmp_path / 'pets'}"
    done = relook.ok("study", "corrupt", "--data", spec, "--out", tmp_path / "out", *one, "--json")
    assert json.loads(done.out)["files"] == [str(tmp_path / "out" / "fog")]
    assert len(list((tmp_path / "out" / "fog" / "2").glob("*/*.png"))) == len(load_data(spec))


def test_corrupt_resumes_and_refuses_other_settings(
    relook: Relook, tmp_path: Path, data: str
) -> None:
    common = ("study", "corrupt", "--data", data, "--out", tmp_path / "c", "--severities", "1")
    relook.ok(*common, "--corruptions", "contrast")
    before = (tmp_path / "c" / "contrast.npy").stat().st_mtime_ns
    relook.ok(*common, "--corruptions", "contrast,brightness")
    assert (tmp_path / "c" / "contrast.npy").stat().st_mtime_ns == before
    assert np.load(tmp_path / "c" / "brightness.npy").shape == (240, 32, 32, 1)
    assert "other settings" in relook.refused(*common, "--corruptions", "fog", "--seed", "1").err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--corruptions", "sand"), "unknown corruption 'sand'"),
        (("--severities", "1,x"), "expected whole numbers from 1 to 5"),
        (("--severities", "7"), "expected severities from 1 to 5"),
        (("--out", "all.npz"), "expected one corruption at one severity"),
        (("--jpeg",), "expected data from folder:DIR"),
    ],
)
def test_mistakes_are_one_line(
    relook: Relook, data: str, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    where = () if "--out" in options else ("--out", tmp_path / "c")
    assert message in relook.refused("study", "corrupt", "--data", data, *where, *options).err
