import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import refused

from relook.errors import RunError
from relook.io.fingerprint import JSON
from relook.io.run_directory import RunDirectory

HOLD = """
import sys
from relook.io.run_directory import RunDirectory
with RunDirectory(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_it_makes_the_directory_and_names_its_files(tmp_path: Path) -> None:
    with RunDirectory(tmp_path / "a" / "b") as run:
        assert run.path.is_dir()
    assert run.policy == tmp_path / "a/b/policy.json"
    assert run.search == tmp_path / "a/b/search.json"
    assert run.run == tmp_path / "a/b/run.json"
    assert run.settings == tmp_path / "a/b/settings.json"
    assert run.predictions == tmp_path / "a/b/predictions.zarr"


def test_it_is_used_again_after_it_was_left(tmp_path: Path) -> None:
    for _ in range(3):
        with RunDirectory(tmp_path) as run:
            run.policy.write_text("{}")
    with pytest.raises(ZeroDivisionError), RunDirectory(tmp_path):
        raise ZeroDivisionError
    with RunDirectory(tmp_path):
        pass


def test_a_second_user_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with RunDirectory(tmp_path):
        for _ in range(2):
            with pytest.raises(RunError, match=f"in use by process {os.getpid()}"):
                RunDirectory(tmp_path).__enter__()
    with RunDirectory(tmp_path):
        pass


def test_the_lock_holds_across_processes_and_falls_with_a_kill(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        assert child.stdout.readline() == "held\n"
        with pytest.raises(RunError) as caught:
            RunDirectory(tmp_path).__enter__()
        assert f"{tmp_path} is in use by process {child.pid}:" in str(caught.value)
        assert "\n" not in str(caught.value)
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        child.stdin.close()
    with RunDirectory(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_lock_whose_holder_has_not_signed_yet_is_refused_too(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused("in use by process unknown", RunDirectory(tmp_path).__enter__, error=RunError)


def test_a_longer_process_number_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("relook run, process 999999999999999999\n")
    with RunDirectory(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"relook run, process {os.getpid()}\n"


@pytest.mark.parametrize("lock", [None, "", "another program\n"])
def test_a_directory_of_something_else_is_refused_and_left_alone(
    tmp_path: Path, lock: str | None
) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    if lock is not None:
        (tmp_path / ".lock").write_text(lock)
    with pytest.raises(RunError, match=r"expected a relook run or an empty directory.*thesis.tex"):
        RunDirectory(tmp_path).__enter__()
    assert (tmp_path / ".lock").exists() == (lock is not None)


def test_a_file_in_its_place_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        refused(r"cannot use .* for a run", RunDirectory(path).__enter__, error=RunError)


def test_half_written_files_are_swept_up(tmp_path: Path) -> None:
    with RunDirectory(tmp_path):
        pass
    (tmp_path / ".relook-0123.tmp").write_text("{")
    with RunDirectory(tmp_path):
        assert [p.name for p in tmp_path.iterdir()] == [".lock"]


def test_settings_are_kept_and_compared(tmp_path: Path) -> None:
    settings: dict[str, JSON] = {"seed": 1, "pool": {"size": 100, "magnitudes": [5, 10.0]}}
    with RunDirectory(tmp_path) as run:
        run.check_settings(settings)
        kept = run.settings.read_bytes()
        run.check_settings(settings)
        run.check_settings(dict(reversed(settings.items())))
    assert run.settings.read_bytes() == kept


def test_tuples_are_lists_on_disk_and_in_the_comparison(tmp_path: Path) -> None:
    with RunDirectory(tmp_path) as run:
        run.check_settings({"budgets": (1, 2)})  # type: ignore[dict-item]
        run.check_settings({"budgets": (1, 2)})  # type: ignore[dict-item]


def test_other_settings_are_refused_with_both_values(tmp_path: Path) -> None:
    there: dict[str, JSON] = {"seed": 1, "pool": {"size": 100, "draws": "fixed"}, "data": "x"}
    here: dict[str, JSON] = {"seed": 2, "pool": {"size": 100, "draws": "fresh"}, "data": "x"}
    with RunDirectory(tmp_path) as run:
        run.check_settings(there)
        with pytest.raises(RunError) as caught:
            run.check_settings(here)
        assert str(caught.value) == (
            f'{tmp_path} holds a run with other settings (pool.draws: "fixed" there, "fresh" here; '
            f"seed: 1 there, 2 here): use another directory or delete {tmp_path}"
        )
        with pytest.raises(RunError, match=r"a: nothing there, 0 here; b: .*; c: .*; 4 more\)"):
            run.check_settings(dict.fromkeys("abcd", 0))


def test_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunDirectory(tmp_path) as run:
        run.check_settings({"seed": 1})
        monkeypatch.setattr("relook.io.run_directory.__version__", "99.0")
        with pytest.raises(RunError, match=r'version: ".*" there, "99.0" here'):
            run.check_settings({"seed": 1})


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"settings": 3}', "[" * 100_000])
def test_damaged_settings_are_one_line(tmp_path: Path, text: str) -> None:
    with RunDirectory(tmp_path) as run:
        run.settings.write_text(text)
        with pytest.raises(RunError) as caught:
            run.check_settings({"seed": 1})
    assert "\n" not in str(caught.value)
    assert f"delete {tmp_path}" in str(caught.value)
