"""Mistakes of a set-up are said before they cost, and a sound one is left alone."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.e2e import faults
from tests.e2e.conftest import Finished, Relook
from torch.nn.functional import cross_entropy

from relook.data import Dataset, load_data
from relook.models.small import new_small
from relook.policy import Policy

MEAN, STD, TRAINED = 0.3, 0.3, 900
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
QUICK = ("--recipe", "small", "--pool-size", "4", "--length", "2", "--batch", "64")
NORMALISED = ("--mean", MEAN, "--std", STD)


@dataclass(frozen=True)
class SetUp:
    """A network that knows digits of one mean and std, and some that it was not trained on."""

    model: str
    other: str
    digits: Dataset
    place: Path

    def data(self, name: str, first: int = 0, last: int = 500, **changes: np.ndarray) -> str:
        """Write digits as a file; its spec."""
        part = self.digits.subset(np.arange(first, last))
        arrays: dict[str, Any] = {
            "images": part.plain.numpy(),
            "labels": part.labels,
            "classes": NAMES,
        }
        np.savez(self.place / f"{name}.npz", **{**arrays, **changes})
        return f"npz:{self.place / name}.npz?layout=nchw"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SetUp:
    place, digits = tmp_path_factory.mktemp("digits"), load_data("digits")
    inputs = (digits.plain[:TRAINED].float() / 255 - MEAN) / STD
    labels = torch.from_numpy(digits.labels[:TRAINED])
    network = new_small()
    torch.save(network.state_dict(), place / "other.pt")
    optimizer = torch.optim.Adam(network.parameters(), 3e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        for part in torch.randperm(TRAINED, generator=generator).split(64):  # type: ignore[no-untyped-call]
            loss = cross_entropy(network.train()(inputs[part]), labels[part])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    torch.save(network.state_dict(), place / "net.pt")
    spec = f"torch:relook.models.small:new_small@{place}"
    left = digits.subset(np.arange(TRAINED, len(digits)))
    return SetUp(f"{spec}/net.pt", f"{spec}/other.pt", left, place)


def notes_of(done: Finished) -> list[str]:
    return [line for line in done.err.splitlines() if line.startswith("note: ")]


def said_in_time(relook: Relook, tmp_path: Path, *sources: object) -> str:
    """Return the one note that a dry run and a search give, the search before it predicts."""
    dry = relook.ok("search", *sources, *QUICK, "--dry-run", "--json")
    (note,) = notes_of(dry)
    assert json.loads(dry.out)["notes"] == [note.removeprefix("note: ")]
    done = relook.ok("search", *sources, *QUICK, "--out", tmp_path / "run", "--json")
    assert notes_of(done) == [note]
    assert done.err.index("note: ") < done.err.index("predicting the pool")
    assert json.loads(done.out)["notes"] == [note.removeprefix("note: ")]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["notes"] == [note.removeprefix("note: ")]
    sentence = json.loads((tmp_path / "run" / "comparison.json").read_text())["verdict"]["sentence"]
    first = f". First check the set-up: {record['notes'][0]}."
    assert first in sentence
    assert sentence.index(first) == sentence.index(". ")  # right after the advice
    return note


def test_a_missing_mean_and_std_are_said(relook: Relook, made: SetUp, tmp_path: Path) -> None:
    data = made.data("digits", 0, 700)
    note = said_in_time(relook, tmp_path, "--model", made.model, "--data", data)
    assert "accuracy is " in note
    assert "mean and std (--mean, --std: none given)" in note


def test_labels_in_another_order_are_said_with_the_order(
    relook: Relook, made: SetUp, tmp_path: Path
) -> None:
    names = sorted(NAMES)
    order = np.array([names.index(name) for name in NAMES])
    labels = order[made.digits.labels[:700]]
    data = made.data("sorted", 0, 700, labels=labels, classes=np.array(names))
    sources = ("--model", made.model, "--data", data, *NORMALISED)
    note = said_in_time(relook, tmp_path, *sources)
    assert (
        "% if the model's classes are in another order (counted from 0: 'eight' 8, 'five' 5, "
        in note
    )
    (tmp_path / "classes.txt").write_text("\n".join(NAMES))
    sound = ("search", *sources, "--classes", tmp_path / "classes.txt", *QUICK, "--dry-run")
    assert notes_of(relook.ok(*sound)) == []


def test_probabilities_read_as_logits_are_said(
    relook: Relook, made: SetUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "softmaxed.py").write_text(
        "import torch\nfrom relook.models.small import new_small\n\n"
        "def build():\n    network = new_small()\n"
        f"    network.load_state_dict(torch.load({str(made.place / 'net.pt')!r}))\n"
        "    return torch.nn.Sequential(network, torch.nn.Softmax(dim=1))\n"
    )
    monkeypatch.chdir(tmp_path)
    model, data = "torch:softmaxed:build", made.data("digits", 0, 700)
    sources = ("search", "--model", model, "--data", data, *NORMALISED, *QUICK, "--dry-run")
    (note,) = notes_of(relook.ok(*sources))
    assert "probabilities rather than logits (outputs)" in note
    assert notes_of(relook.ok(*sources, "--outputs", "probabilities")) == []


@pytest.fixture(scope="module")
def searched(made: SetUp) -> Path:
    sources = ("--model", made.model, "--data", made.data("searched"), *NORMALISED)
    out = made.place / "run"
    done = faults.run(made.place / "log", "search", *sources, *QUICK, "--out", out)
    assert done.code == 0, done.lines
    assert not [line for line in done.lines if line.startswith("note: ") and "the model" in line]
    return out


@pytest.fixture
def run(searched: Path, tmp_path: Path) -> Path:
    """A run that a test can change."""
    return Path(shutil.copytree(searched, tmp_path / "run"))


def test_temperatures_of_another_model_are_said(
    relook: Relook, made: SetUp, run: Path, tmp_path: Path
) -> None:
    told = "note: the policy's temperatures were fitted on another model:  relook calibrate"
    policy, fitted = ("--method", "policy"), tmp_path / "fitted.json"
    predict = ("predict", "--data", made.data("few", 0, 20), "--out", tmp_path / "p.csv", "--force")
    other = ("--model", made.other, *NORMALISED)
    assert told not in relook.ok(*predict, run, *policy).err
    assert told in relook.ok(*predict, run, *policy, *other).err
    assert told in relook.ok(*predict, run / "policy.json", *other).err
    assert told not in relook.ok(*predict, run, *policy, *other, "--temperature", "none").err
    unused = made.data("unused", 600, 800)
    relook.ok("calibrate", run, *other, "--data", unused, "--out", fitted)
    assert told not in relook.ok(*predict, fitted, *other).err
    assert told in relook.ok(*predict, fitted, "--model", made.model, *NORMALISED).err
    export = ("export", "--format", "torch-export", "--out", tmp_path / "m.pt2", "--force")
    assert told in relook.ok(*export, run, *policy, *other).err
    assert told not in relook.ok(*export, run, *policy).err


def test_calibrate_takes_model_and_normalisation_from_the_run(
    relook: Relook, made: SetUp, run: Path, tmp_path: Path
) -> None:
    unused, fitted = made.data("unused", 600, 800), []
    for name, given in enumerate(((), NORMALISED, ("--model", made.model))):
        out = tmp_path / f"{name}.json"
        done = relook.ok("calibrate", run, "--data", unused, *given, "--out", out)
        assert f"mean {MEAN}, std {STD}" in done.err
        fitted.append(Policy.load(out))
    assert fitted[0] == fitted[1] == fitted[2]


@pytest.mark.parametrize(("first", "last", "used"), [(0, 500, 500), (400, 600, 100)])
def test_calibrate_refuses_images_that_the_run_searched_or_compared_on(
    relook: Relook, made: SetUp, run: Path, first: int, last: int, used: int
) -> None:
    common = ("calibrate", run, "--data", made.data("again", first, last))
    done = relook.refused(*common)
    assert f"{used} of its {last - first} images (image 0 first) were used" in done.err
    assert "give others, or --reuse-images" in done.err
    assert done.err.count("error:") == 1
    relook.ok(*common, "--reuse-images")
