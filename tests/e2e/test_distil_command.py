"""`relook distil` as users meet it: weights, verdict, a next command that works, refusals."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.e2e.conftest import Relook, Words

from relook.data import Dataset, load_data
from relook.deploy.distil import distil
from relook.deploy.distil.verdict import judge
from relook.models.small import load_small, new_small, save_small
from relook.models.weights import read_tensors
from relook.policy import Policy, SubPolicy
from relook.policy.pool import sample_pool
from relook.studies.training import train


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits")


def written(path: Path, dataset: Dataset) -> str:
    np.savez(path, images=dataset.plain.numpy(), labels=dataset.labels)
    return f"npz:{path}?layout=nchw"


@pytest.fixture
def network(tmp_path: Path, digits: Dataset) -> Path:
    """A network that has learned something, and is far too sure of it."""
    how: Any = {"epochs": 4, "seed": 0, "recipe": "small", "augment": "none", "threads": 1}
    own = train(new_small(seed=1, width=8), digits.subset(np.arange(300)), **how)
    save_small(own, tmp_path / "network.safetensors")
    return tmp_path / "network.safetensors"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    views = (SubPolicy(), *sample_pool("small", 6, 0)[:5])
    path = tmp_path / "views.json"
    Policy(views, temperatures=(1.0,) * len(views), recipe="small", seen=b"").save(path)
    return path


@pytest.fixture
def common(network: Path, policy: Path, digits: Dataset, tmp_path: Path) -> Words:
    labelled = written(tmp_path / "labelled.npz", digits.subset(np.arange(300, 500)))
    images = written(tmp_path / "images.npz", digits.subset(np.arange(480, 800)))
    out = tmp_path / "distilled"
    return ("distil", policy, "-m", f"small@{network}", "--test", labelled, "-d", images, "-o", out)


def test_weights_that_do_not_help_are_not_written(
    relook: Relook, common: Words, tmp_path: Path
) -> None:
    out = tmp_path / "distilled"
    assert "nothing was written" in relook.ok(*common, "--epochs", 3, "--dry-run").out
    assert not out.exists()
    done = relook.ok(*common, "--epochs", 3)
    few = "note: 320 images may be too few to learn from: where it was measured, 5,000 helped"
    assert few in " ".join(done.err.split())
    assert "20 images left out: the gain is measured on them" in done.err
    assert "distilled, policy" in done.out
    assert "keep the old weights" in done.out  # views that are no good, by design
    assert "no weights were written" in done.err
    assert not (out / "weights.safetensors").exists()
    found = json.loads((out / "distil.json").read_text())
    assert (found["images"], found["left_out"], len(found["epochs"])) == (300, 20, 3)
    again = json.loads(relook.ok(*common, "--epochs", 3, "--json").out)  # nothing is done twice
    assert again["verdict"] == found["verdict"]
    assert "other settings" in relook.refused(*common, "--epochs", 4).err


def test_arrays_need_no_labels(
    relook: Relook, common: Words, digits: Dataset, tmp_path: Path
) -> None:
    unlabelled = digits.subset(np.arange(480, 800)).plain.numpy()
    np.savez(tmp_path / "images.npz", images=unlabelled)
    done = relook.ok(*common, "--epochs", 1)
    assert "20 images left out: the gain is measured on them" in done.err
    assert json.loads((tmp_path / "distilled" / "distil.json").read_text())["images"] == 300


def test_weights_that_help_can_be_deployed_at_once(
    relook: Relook, common: Words, network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distil, "judge", lambda *given: replace(judge(*given), helps=True))
    out = tmp_path / "distilled"
    done = json.loads(relook.ok(*common, "--epochs", 2, "--json").out)
    old, new = (read_tensors(path)[0] for path in (network, out / "weights.safetensors"))
    assert old.keys() == new.keys()
    assert any(not torch.equal(old[name], new[name]) for name in old)
    load_small(out / "weights.safetensors")
    relook.ok(*shlex.split(done["deploy"])[1:])
    assert (out / "model.onnx").is_file()


def test_onnx_files_are_refused_in_one_line(
    relook: Relook, network: Path, policy: Path, digits: Dataset, tmp_path: Path
) -> None:
    data = written(tmp_path / "labelled.npz", digits.subset(np.arange(300, 340)))
    file = tmp_path / "network.onnx"
    plain = tmp_path / "plain.json"
    Policy((SubPolicy(),), temperatures=(1.0,), seen=b"").save(plain)
    relook.ok("export", plain, "-m", f"small@{network}", "-d", data, "-o", file)
    common = ("distil", policy, "-m", f"onnx:{file}", "--outputs", "probabilities")
    assert "or else --test" in relook.refused(*common, "-d", data).err
    said = relook.refused(*common, "--test", data, "-d", data).err
    assert "an ONNX file, a function and an ensemble cannot be" in " ".join(said.split())
