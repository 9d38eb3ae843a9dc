from pathlib import Path

import pytest
from tests.support import refused
from tests.unit.cli.command_line import relook
from tests.unit.policy.reference_files import CIFAR, IMAGENET, ORDER, npy, npz, objects

from relook import TRANSFORMS, Policy
from relook.errors import FileFormatError
from relook.policy import Step, SubPolicy


def test_import_writes_a_policy_and_says_so(tmp_path: Path) -> None:
    source, out = npz(tmp_path / "gps.npz", objects(CIFAR)), tmp_path / "out" / "policy.json"
    result = relook("policy", "import", source, "--out", out)
    assert result.output == (
        f"5 sub-policies (4 distinct), fresh draws, recipe cifar, written to {out}\n"
    )
    assert Policy.load(out) == Policy.from_reference(source)


def test_import_writes_to_policy_json_and_never_over_it_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    npy(Path("gps.npy"), IMAGENET)
    Path("policy.json").write_text("mine", encoding="utf-8")
    message = r"^policy\.json exists: give another --out, or --force"
    refused(message, relook, "policy", "import", "gps.npy")
    assert Path("policy.json").read_text(encoding="utf-8") == "mine"
    relook("policy", "import", "gps.npy", "--force")
    assert len(Policy.load("policy.json")) == 3


def test_a_bad_file_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "gps.npz").write_bytes(b"PK")
    out = tmp_path / "policy.json"
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(FileFormatError):
        relook("policy", "import", tmp_path / "gps.npz", "--out", out, "--force")
    assert out.read_text(encoding="utf-8") == "mine"


def test_freeze_draws_once_and_drops_the_temperatures(tmp_path: Path) -> None:
    fresh, out = tmp_path / "fresh.json", tmp_path / "frozen.json"
    policy = Policy((SubPolicy((Step("rotate", 9),)),), temperatures=(1.5,), recipe="cifar")
    policy.save(fresh)
    result = relook("policy", "freeze", fresh, "--out", out, "--seed", 3)
    assert "1 sub-policy (1 distinct), fixed draws, recipe cifar, written to" in result.output
    assert "relook calibrate" in result.output
    frozen = Policy.load(out)
    assert frozen == policy.freeze(3)
    assert frozen.temperatures is None
    again = ("policy", "freeze", out, "--out", tmp_path / "b.json")
    refused("expected a policy of fresh draws, got fixed ones", relook, *again)


def test_every_transform_of_the_authors_is_ours() -> None:
    assert set(ORDER) <= set(TRANSFORMS)
