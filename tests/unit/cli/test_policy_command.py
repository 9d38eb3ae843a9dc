from pathlib import Path

import pytest
from tests.unit.policy.reference_files import CIFAR, IMAGENET, ORDER, npy, npz, objects
from typer.testing import CliRunner

from relook import TRANSFORMS, Policy, RelookError
from relook.cli.app import app
from relook.errors import FileFormatError
from relook.policy import Step, SubPolicy


def test_import_writes_a_policy_and_says_so(tmp_path: Path) -> None:
    source, out = npz(tmp_path / "gps.npz", objects(CIFAR)), tmp_path / "out" / "policy.json"
    result = CliRunner().invoke(app, ["policy", "import", str(source), "--out", str(out)])
    assert result.exit_code == 0, result.output
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
    result = CliRunner().invoke(app, ["policy", "import", "gps.npy"])
    assert isinstance(result.exception, RelookError)
    assert str(result.exception) == (
        "policy.json exists: give another --out, or --force to overwrite it"
    )
    assert Path("policy.json").read_text(encoding="utf-8") == "mine"
    assert CliRunner().invoke(app, ["policy", "import", "gps.npy", "--force"]).exit_code == 0
    assert len(Policy.load("policy.json")) == 3


def test_a_bad_file_leaves_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "gps.npz").write_bytes(b"PK")
    out = tmp_path / "policy.json"
    out.write_text("mine", encoding="utf-8")
    result = CliRunner().invoke(
        app, ["policy", "import", str(tmp_path / "gps.npz"), "--out", str(out), "--force"]
    )
    assert isinstance(result.exception, FileFormatError)
    assert out.read_text(encoding="utf-8") == "mine"


def test_freeze_draws_once_and_drops_the_temperatures(tmp_path: Path) -> None:
    fresh, out = tmp_path / "fresh.json", tmp_path / "frozen.json"
    policy = Policy((SubPolicy((Step("rotate", 9),)),), temperatures=(1.5,), recipe="cifar")
    policy.save(fresh)
    result = CliRunner().invoke(
        app, ["policy", "freeze", str(fresh), "--out", str(out), "--seed", "3"]
    )
    assert result.exit_code == 0, result.output
    assert "1 sub-policy (1 distinct), fixed draws, recipe cifar, written to" in result.output
    assert "relook calibrate" in result.output
    frozen = Policy.load(out)
    assert frozen == policy.freeze(3)
    assert frozen.temperatures is None
    again = CliRunner().invoke(
        app, ["policy", "freeze", str(out), "--out", str(tmp_path / "b.json")]
    )
    assert "expected a policy of fresh draws, got fixed ones" in str(again.exception)


def test_every_transform_of_the_authors_is_ours() -> None:
    assert set(ORDER) <= set(TRANSFORMS)
