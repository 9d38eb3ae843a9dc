"""No command claims a gain on images that the policy or its numbers were found on."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.e2e import faults
from tests.e2e.conftest import Relook, save_data, save_model
from tests.unit.data.image_files import write_classes

from relook.data import load_data

QUICK = ("--recipe", "small", "--pool-size", "12", "--length", "4", "--batch", "64")
ONE = ("--budgets", "2", "--methods", "plain")


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("searched")
    sources = ("--model", save_model(place), "--data", save_data(place))
    how = (*QUICK, "--strategy", "greedy", "--draws", "fresh", "--out", place / "run")
    done = faults.run(place / "log", "search", *sources, *how)
    assert done.code == 0, done.lines
    return place / "run"


@pytest.fixture
def run(searched: Path, tmp_path: Path) -> Path:
    """A run that a test can change."""
    return Path(shutil.copytree(searched, tmp_path / "run"))


@pytest.mark.parametrize("reading", [("--crop", "0.9"), ("--size", "20")])
def test_images_that_are_read_another_way_are_the_same_images(
    relook: Relook, run: Path, tmp_path: Path, reading: tuple[str, str]
) -> None:
    done = relook.ok("compare", run, *reading, *ONE, "--out", tmp_path / "compared")
    assert "80 held-out images" in done.out
    corrupted = ("--corruptions", "fog", "--severities", "1", "--no-figures")
    out = ("--out", tmp_path / "robustness")
    done = relook.ok("study", "robustness", run, *reading, *ONE, *corrupted, *out)
    assert "80 images" in done.out
    done = relook("early-exit", run, *reading, "--target", "views=2", "--no-figures")
    assert "40 images to learn on, 40 to report on" in done.err  # too few of them, perhaps


def test_files_are_known_by_their_content(relook: Relook, model: str, tmp_path: Path) -> None:
    write_classes(tmp_path / "pets", *map(str, range(10)), images=6)
    folder, size = f"folder:{tmp_path / 'pets'}", ("--channels", "1")
    search = ("search", "--model", model, "--data", folder, "--out", tmp_path / "run")
    relook.ok(*search, "--size", "32", *size, *QUICK)
    (tmp_path / "pets").rename(tmp_path / "animals")
    again = f"folder:{tmp_path / 'animals'}"
    how = ("--model", model, "--data", again, "--size", "24", "--full-size", "no", *size, *ONE)
    policy = tmp_path / "alone.json"
    policy.write_bytes((tmp_path / "run" / "policy.json").read_bytes())
    done = relook.ok("compare", policy, *how, "--out", tmp_path / "compared")
    assert "20 of its 60 images are used" in done.err
    assert "20 held-out images" in done.out


def test_a_policy_that_leaves_its_run_keeps_its_split(
    relook: Relook, run: Path, model: str, data: str, tmp_path: Path
) -> None:
    frozen = tmp_path / "elsewhere" / "frozen.json"
    frozen.parent.mkdir()
    relook.ok("policy", "freeze", run / "policy.json", "--out", frozen)
    where = ("--model", model, "--data", data)
    done = relook.ok("compare", frozen, *where, *ONE, "--out", tmp_path / "compared")
    assert "80 of its 240 images are used" in done.err
    assert "80 held-out images" in done.out
    assert "cannot be known" not in done.out


@pytest.mark.parametrize("weights", ["equal", "always"])
def test_images_that_fitted_numbers_are_not_held_out(
    relook: Relook, run: Path, model: str, data: str, tmp_path: Path, weights: str
) -> None:
    frozen, fitted = tmp_path / "frozen.json", tmp_path / "fitted.json"
    relook.ok("policy", "freeze", run / "policy.json", "--out", frozen)
    where = ("--model", model, "--data", data)
    how = ("--weights", weights, "--out", fitted)
    done = relook.ok("calibrate", frozen, *where, *how, "--reuse-images")
    assert ("80 of its 240 images are used" in done.err) == (weights == "always")
    done = relook.refused("compare", fitted, *where, *ONE, "--out", tmp_path / "compared")
    assert "that no policy was found on, got 0 of 240" in done.err


def test_validation_images_are_not_compared_on(
    relook: Relook, run: Path, model: str, data: str, tmp_path: Path
) -> None:
    digits = load_data(data)
    images, classes = digits.plain.numpy(), np.array(digits.classes)
    np.savez(tmp_path / "all.npz", images=images, labels=digits.labels, classes=classes)
    common = ("compare", run, "--budgets", "1", "--methods", "mgrid", "--grid-views", "1")
    more = ("--validation", f"npz:{tmp_path / 'all.npz'}", "--out", tmp_path / "compared")
    done = relook.ok(*common, *more)
    assert "160 of its 240 images are used for validation" in done.err


def test_what_cannot_be_known_is_in_the_headline(
    relook: Relook, run: Path, model: str, data: str, tmp_path: Path
) -> None:
    one = ("--corruptions", "contrast", "--severities", "1", "--data", data)
    relook.ok("study", "corrupt", *one, "--out", tmp_path / "made")
    spec = f"cifar10c:{tmp_path / 'made'}?corruption=contrast&severity=1"
    common = ("compare", run / "policy.json", "--model", model, "--data", spec, *ONE)
    done = relook.ok(*common, "--out", tmp_path / "compared")
    assert "80 held-out images" in done.out
    (tmp_path / "made" / "sources.npz").unlink()
    done = relook.ok(*common, "--out", tmp_path / "again")
    assert "240 images; cLL" in done.out
    assert "held-out" not in done.out
    assert "cannot be known: the source of these images is not known." in done.out
