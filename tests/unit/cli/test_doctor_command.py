"""`relook doctor` names what is broken, what is missing, and what to do about it."""

import json
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from relook.cli import doctor
from relook.cli.verbs import listing
from relook.errors import MissingExtraError, install_command
from relook.foundation import torchvision_import

METADATA = (
    "numpy>=2.0",
    "matplotlib>=3.9; extra == 'all'",
    "absent-package>=1.0; extra == 'all'",
    'matplotlib>=3.9; extra == "report"',
    "absent-package>=1.0; extra == 'hf'",
    "pytest>=8.3; extra == 'dev'",
    "matplotlib>=3.9; extra == 'dev'",
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two packages, one of which cannot be imported."""
    for name, code in (("sound_one", ""), ("broken_one", "raise OSError('no libfoo.so')")):
        (tmp_path / f"{name}.py").write_text(code)
        about = tmp_path / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_extras_for_users_are_those_within_all() -> None:
    wanted = doctor.requirements(METADATA)
    assert {extra: [one.name for one in part] for extra, part in wanted.items()} == {
        "": ["numpy"],
        "report": ["matplotlib"],
        "hf": ["absent-package"],
    }


@pytest.mark.usefixtures("installed")
def test_packages_are_imported_and_their_versions_compared() -> None:
    names = ("sound-one>=1.0", "broken-one", "absent-one")
    versions, broken = doctor.try_packages([Requirement(name) for name in names])
    known = [versions[name] for name in ("sound-one", "broken-one", "absent-one")]
    assert known == ["1.5", "1.5", None]
    why = "OSError: no libfoo.so: pip install --force-reinstall broken-one"
    assert broken == {"broken-one": why}
    _, broken = doctor.try_packages([Requirement("sound-one>=2")])
    assert broken == {"sound-one": "expected >=2, got 1.5: pip install 'sound-one>=2'"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of packages without the slow ones."""
    monkeypatch.setattr(metadata, "requires", lambda name: METADATA)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("told", "source"),
    [
        ('{"url": "file:///my/clone", "dir_info": {"editable": true}}', "/my/clone"),
        ('{"url": "file:///tmp/relook.whl", "archive_info": {}}', "relook"),
        ("", "relook"),
    ],
)
def test_a_sound_machine_is_told_what_could_be_added(
    told: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "relook-0.1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: relook\nVersion: 0.1\n")
    (about / "direct_url.json").write_text(told)
    monkeypatch.syspath_prepend(tmp_path)
    done = CliRunner().invoke(listing(), ["doctor", "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["broken"] == {}
    assert found["devices"]["cpu"] == "works"
    assert (found["engines"]["torch"], found["engines"]["channels-last"]) == ("works", "works")
    assert found["engines"]["onnx"] in ("works", "not installed")
    assert (found["missing"], found["install"]) == (["hf"], f"pip install '{source}[hf]'")
    assert found["machine"]["cores"] >= 1


def test_the_advice_on_an_extra_names_the_clone_and_what_it_is_tested_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about, clone = tmp_path / "relook-0.1.dist-info", tmp_path / "my clone"
    about.mkdir()
    clone.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: relook\nVersion: 0.1\n")
    origin = {"url": clone.as_uri(), "dir_info": {"editable": True}}
    (about / "direct_url.json").write_text(json.dumps(origin))
    monkeypatch.syspath_prepend(tmp_path)
    plain = f"pip install '{clone}[onnx,hf]'"
    assert install_command("onnx", "hf") == plain
    (clone / "constraints.txt").touch()
    pinned = f"pip install -c '{clone / 'constraints.txt'}' '{clone}[onnx]'"
    assert install_command("onnx") == pinned
    error = str(MissingExtraError("onnxruntime", "onnx", "onnx:FILE"))
    assert error == f"onnx:FILE needs onnxruntime, which is not installed: run  {pinned}"


def test_caches_are_listed_if_they_hold_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("NUMBA_CACHE_DIR", "TORCH_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    (tmp_path / "HF_HUB_CACHE").mkdir()
    (tmp_path / "HF_HUB_CACHE" / "weights").write_bytes(bytes(3000))
    said = CliRunner().invoke(listing(), ["doctor"]).stdout
    assert "Hugging Face's downloads: " in said
    assert "0 bytes" not in said
    assert "compiled by numba" not in said
    assert "torch's downloads" not in said


def test_one_core_is_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relook.foundation.threads.available_cores", lambda: 1)
    assert ", 1 core, " in CliRunner().invoke(listing(), ["doctor"]).stdout


@pytest.mark.usefixtures("installed")
def test_what_is_broken_is_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "requires", lambda name: ["broken-one"])
    done = CliRunner().invoke(listing(), ["doctor"])
    assert done.exit_code == doctor.BROKEN
    assert "broken: broken-one: OSError: no libfoo.so: pip install" in done.stdout
    assert "all is well" not in done.stdout


def test_an_engine_that_fails_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise RuntimeError("no kernel image\nfor this device")

    monkeypatch.setattr("relook.models.accelerate.accelerate", fail)
    assert doctor.try_engine("torch") == "no kernel image"


@pytest.mark.usefixtures("small")
def test_a_torchvision_for_another_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_import, "declared", {"nms": object()})
    done = CliRunner().invoke(listing(), ["doctor"])
    assert "operator torchvision::nms does not exist" in done.stdout
    assert "pip install --force-reinstall --no-deps torchvision --index-url" in done.stdout
    assert done.exit_code == 0
