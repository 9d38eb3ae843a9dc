"""Every row of the tables of sources, from a real file to a policy, by the command line.

A new row of DATA_SOURCES or MODEL_SOURCES needs a case here or in the contract's examples.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.contracts.predictor_cases import EXAMPLES as MODELS
from tests.contracts.predictor_cases import SEARCHED
from tests.e2e.conftest import Relook
from tests.unit.data.cifar_files import write_binary10, write_python100
from tests.unit.data.hf_files import save_hf_data
from tests.unit.data.idx_files import idx_bytes
from tests.unit.data.image_files import write_classes
from tests.unit.report.html_reader import read_html

from relook.data import DATA_SOURCES, load_data
from relook.errors import MissingExtraError
from relook.models import MODEL_SOURCES
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.report import write_report

QUICK = ("--recipe", "small", "--pool-size", "3", "--length", "1", "--batch", "64")


def digits_case(directory: Path) -> str:
    return "digits:test"


def npz_case(directory: Path) -> str:
    images = np.random.default_rng(1).integers(0, 256, (40, 20, 24, 3), dtype=np.uint8)
    np.savez(directory / "set.npz", images=images, labels=np.arange(40) % 4)
    return f"npz:{directory / 'set.npz'}"


def folder_case(directory: Path) -> str:
    write_classes(directory / "set", "cat", "dog", images=20, kind="jpg")
    return f"folder:{directory / 'set'}"


def csv_case(directory: Path) -> str:
    write_classes(directory / "set", "cat", "dog", images=20, kind="webp")
    rows = [f"set/{name}/{i}.webp,{name}" for name in ("cat", "dog") for i in range(20)]
    (directory / "table.csv").write_text("\n".join(["path,label", *rows]))
    return f"csv:{directory / 'table.csv'}"


def cifar10_case(directory: Path) -> str:
    write_binary10(directory / "cifar-10-batches-bin", count=40)
    return f"cifar10:{directory}"


def cifar100_case(directory: Path) -> str:
    write_python100(directory / "cifar-100-python", count=40)
    return f"cifar100:{directory}"


def idx_case(directory: Path) -> str:
    digits = load_data("digits").subset(np.arange(40))
    (directory / "t10k-images-idx3-ubyte").write_bytes(idx_bytes(digits.plain[:, 0].numpy()))
    (directory / "t10k-labels-idx1-ubyte").write_bytes(idx_bytes(digits.labels.astype(np.uint8)))
    return f"idx:{directory}"


def hf_case(directory: Path) -> str:
    save_hf_data(directory / "set", images=40)
    return f"hf:{directory / 'set'}"


def corrupted_case(directory: Path) -> str:
    images = np.random.default_rng(3).integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    (directory / "set").mkdir()
    np.save(directory / "set" / "snow.npy", images)
    np.save(directory / "set" / "labels.npy", np.arange(200) % 4)
    return f"{directory / 'set'}?corruption=snow&severity=3"


def imagenetc_case(directory: Path) -> str:
    write_classes(directory / "set" / "fog" / "1", "cat", "dog", images=20, kind="jpg")
    return f"imagenetc:{directory / 'set'}?corruption=fog&severity=1"


DATA: dict[str, Callable[[Path], str]] = {
    "digits": digits_case,
    "npz": npz_case,
    "folder": folder_case,
    "csv": csv_case,
    "cifar10": cifar10_case,
    "cifar100": cifar100_case,
    "idx": idx_case,
    "hf": hf_case,
    "cifar10c": lambda directory: f"cifar10c:{corrupted_case(directory)}",
    "cifar100c": lambda directory: f"cifar100c:{corrupted_case(directory)}",
    "imagenetc": imagenetc_case,
}


def test_every_source_is_searched_from_a_real_file() -> None:
    assert set(DATA) == set(DATA_SOURCES)
    assert set(MODELS) == set(MODEL_SOURCES)
    # Those of `small@` are the models of all other tests here.
    assert {*SEARCHED, "small"} == set(MODEL_SOURCES)


@pytest.mark.parametrize("source", DATA_SOURCES)
def test_a_policy_is_found_for_images_of(source: str, relook: Relook, tmp_path: Path) -> None:
    try:
        spec = DATA[source](tmp_path)
    except MissingExtraError as error:
        pytest.skip(str(error))
    found = load_data(spec)
    network = new_small(channels=found.images.shape[1], classes=len(found.classes), width=2)
    save_small(network, tmp_path / "net.safetensors")
    sources = ("--model", f"small@{tmp_path / 'net.safetensors'}", "--data", spec)
    relook.ok("search", *sources, "--out", tmp_path / "run", *QUICK)
    assert len(Policy.load(tmp_path / "run" / "policy.json")) == 1
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["data"]["fingerprint"] == found.fingerprint
    assert record["data"]["images"] == len(found)
    assert record["data"]["classes"] == list(found.classes)
    page = write_report(tmp_path / "run", figures=False).read_text(encoding="utf-8")
    assert f"{source}:" in read_html(page).words()
    policy = ("--policy", tmp_path / "run" / "policy.json", "--out", tmp_path / "new.json")
    relook.ok("calibrate", *sources, *policy, "--reuse-images")
