"""What a machine, a disk and a model can do to a command: docs/reliability.md."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
from tests.e2e.faults import (
    COMMANDS,
    ODD_MODEL,
    Workplace,
    check_one_line,
    die_at_change,
    new_workplace,
    results,
    run,
    start,
    warm_up,
)

from relook.models.small import new_small, save_small


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    warm_up()
    return new_workplace(tmp_path_factory.mktemp("inputs"))


@pytest.fixture
def place(inputs: Workplace, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setattr("relook.deploy.batch.image_source.BLOCK", 8)
    return inputs


@pytest.fixture(scope="module")
def finished(inputs: Workplace, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the directory of a command that nothing happened to; it is run once."""

    @cache
    def make(command: str) -> Path:
        base = tmp_path_factory.mktemp(command)
        out = base / "whole"
        out.mkdir()
        done = run(base / "log", *getattr(inputs, command)(out))
        assert done.code == 0, done.lines
        return out

    return make


@pytest.fixture
def whole(command: str, place: Workplace, finished: Callable[[str], Path]) -> dict[str, object]:
    return results(command, finished(command))


MIDDLE = {"search": 30, "compare": 22, "predict": 14}
"""A change of a file, counted from the start, at which some blocks are done and some are not."""


@contextmanager
def small_disk(path: Path, kilobytes: int) -> Iterator[Callable[[str], None]]:
    """Yield a way to change a small file system's options; it is mounted at `path`."""
    path.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    size = f"size={kilobytes}k"
    made = subprocess.run([mount, "-t", "tmpfs", "-o", size, "tmpfs", path], capture_output=True)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")

    def remount(options: str) -> None:
        subprocess.run([mount, "-o", f"remount,{options}", path], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_line_and_the_command_goes_on(
    command: str, place: Workplace, whole: dict[str, object], tmp_path: Path
) -> None:
    out, full = tmp_path / "small", 0
    with small_disk(out, 4) as remount:
        for kilobytes in (4, 48, 192, 20_000):
            remount(f"size={kilobytes}k")
            done = run(tmp_path / "log", *getattr(place, command)(out))
            if done.code == 0:
                break
            full += 1
            check_one_line(done, "No space left on device")
            assert all(whole[name] == found for name, found in results(command, out).items())
        assert full > 0
        assert results(command, out) == whole


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_may_not_grow_is_one_line(
    command: str,
    place: Workplace,
    whole: dict[str, object],
    finished: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    out = tmp_path / "limited"
    out.mkdir()
    limit = max(1, max(p.stat().st_size for p in finished(command).rglob("*")) // 2)

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = run(tmp_path / "log", *getattr(place, command)(out), before=limited)
    check_one_line(done, "File too large")
    done = run(tmp_path / "log", *getattr(place, command)(out))
    assert done.code == 0, done.lines
    assert results(command, out) == whole


@pytest.mark.parametrize("command", COMMANDS)
def test_a_read_only_directory_is_one_line(command: str, place: Workplace, tmp_path: Path) -> None:
    out = tmp_path / "read-only"
    with small_disk(out, 1000) as remount:
        remount("ro")
        check_one_line(run(tmp_path / "log", *getattr(place, command)(out)), "Read-only")
        assert not list(out.iterdir())


@pytest.fixture
def killed(place: Workplace, tmp_path: Path) -> Callable[[str], Path]:
    """Return a directory in which a command was killed in the middle."""

    def make(command: str) -> Path:
        out = tmp_path / "killed"
        out.mkdir()
        kill = die_at_change(MIDDLE[command], out)
        done = run(tmp_path / "log", *getattr(place, command)(out), before=kill)
        assert done.code == -signal.SIGKILL, done.lines
        return out

    return make


PARTS = {"search": "predictions.zarr/c/*/*/*", "predict": "out.csv.unfinished/part-*.json"}


@pytest.mark.parametrize("command", PARTS)
def test_a_flipped_bit_in_what_is_done_is_found(
    command: str,
    place: Workplace,
    whole: dict[str, object],
    killed: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    out, draws = killed(command), random.Random(0)  # noqa: S311
    parts = [path for path in out.glob(PARTS[command]) if path.suffix != ".partial"]
    assert len(parts) >= 2
    for path in parts:
        data = bytearray(path.read_bytes())
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        path.write_bytes(data)
    done = run(tmp_path / "log", *getattr(place, command)(out))
    assert done.code == 0, done.lines
    assert results(command, out) == whole


def test_a_flipped_bit_in_the_trace_of_a_selection_is_found(
    place: Workplace, finished: Callable[[str], Path], tmp_path: Path
) -> None:
    whole = results("search", finished("search"))
    out = tmp_path / "whole"
    shutil.copytree(finished("search"), out)
    trace = out / "selection.json"
    data = trace.read_text()
    pick = data.split('"candidate": ')[1].split(",")[0]
    other = "1" if pick != "1" else "2"
    trace.write_text(data.replace(f'"candidate": {pick},', f'"candidate": {other},', 1))
    done = run(tmp_path / "log", *place.search(out))
    assert done.code == 0, done.lines
    assert "selection.json is not used (it is damaged or of another version)" in "".join(done.lines)
    assert results("search", out) == whole


@pytest.mark.parametrize("command", ["search", "compare", "predict"])
def test_truncated_records_are_one_line_or_made_again(
    command: str,
    place: Workplace,
    whole: dict[str, object],
    killed: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    out = killed(command)
    records = sorted(path for path in out.rglob("*.json") if not path.name.startswith("."))
    assert records
    for record in records:
        content = record.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 2):
            copy = tmp_path / f"{record.name}-{length}"
            shutil.copytree(out, copy)
            (copy / record.relative_to(out)).write_bytes(content[:length])
            done = run(tmp_path / "log", *getattr(place, command)(copy))
            if done.code == 0:
                assert results(command, copy) == whole
            else:
                check_one_line(done, record.name, "delete")
                assert not results(command, copy)


@pytest.mark.parametrize("command", ["search", "compare", "predict"])
def test_of_two_processes_one_is_refused(
    command: str, place: Workplace, whole: dict[str, object], tmp_path: Path
) -> None:
    out, log = tmp_path / "out", tmp_path / "first"
    out.mkdir()

    def stop_at_change() -> None:
        die_at_change(MIDDLE[command], out, number=signal.SIGSTOP)()

    first = start(log, *getattr(place, command)(out), before=stop_at_change)
    os.waitpid(first, os.WUNTRACED)
    check_one_line(run(tmp_path / "log", *getattr(place, command)(out)), f"process {first}", "wait")
    os.kill(first, signal.SIGCONT)
    _, status = os.waitpid(first, 0)
    assert os.WEXITSTATUS(status) == 0, log.read_text()
    assert results(command, out) == whole


@pytest.mark.parametrize("command", ["search", "predict"])
def test_a_clock_that_jumps_changes_nothing(
    command: str, place: Workplace, whole: dict[str, object], tmp_path: Path
) -> None:
    out = tmp_path / "jumping"
    out.mkdir()

    def jumping() -> None:
        draws, clock = random.Random(1), time.time  # noqa: S311
        years = 365 * 86400
        time.time = lambda: clock() + draws.uniform(-20, 20) * years
        time.time_ns = lambda: int(1e9 * time.time())

    kill = die_at_change(MIDDLE[command], out)

    def jumping_until_killed() -> None:
        jumping()
        kill()

    run(tmp_path / "log", *getattr(place, command)(out), before=jumping_until_killed)
    for path in out.rglob("*"):  # files from the future and from long ago
        os.utime(path, (0, random.Random(path.name).choice([0, 4e9])))  # noqa: S311
    done = run(tmp_path / "log", *getattr(place, command)(out), before=jumping)
    assert done.code == 0, done.lines
    assert results(command, out) == whole
    assert datetime.now().year > 2000  # the parent's clock is its own


@pytest.fixture
def odd(place: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a module of odd models, and the one that we are in."""
    (tmp_path / "odd_models.py").write_text(ODD_MODEL)
    (tmp_path / "scale").write_text("1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def of_odd(arguments: tuple[object, ...], name: str) -> list[object]:
    """Return a command's arguments with another model."""
    given = list(arguments)
    given[given.index("-m") + 1] = f"torch:odd_models:{name}"
    return [*given, "--batch", 16] if "--batch" not in given else given


@pytest.mark.parametrize("command", ["search", "compare", "predict"])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raising", "out of luck"),
        ("nan", "NaN"),
        ("one_row_less", "for 16 images, got [15, 10]"),
        ("another_class", "10"),
        ("not_a_tensor", "dict"),
    ],
)
def test_a_model_that_fails_is_one_line_and_the_rest_is_kept(
    command: str, name: str, words: str, place: Workplace, odd: Path
) -> None:
    out = odd / "out"
    out.mkdir()
    done = run(odd / "log", *of_odd(getattr(place, command)(out), name))
    check_one_line(done, words)
    assert not results(command, out)


@pytest.mark.parametrize("command", ["search", "compare", "predict"])
def test_a_model_that_hangs_is_ended_and_the_command_goes_on(
    command: str, place: Workplace, odd: Path
) -> None:
    whole, out = odd / "whole", odd / "out"
    for path in (whole, out):
        path.mkdir()
    awake = odd / "awake"
    awake.touch()
    run(odd / "log", *of_odd(getattr(place, command)(whole), "hanging"))
    arguments = of_odd(getattr(place, command)(out), "hanging")
    awake.unlink()
    started = time.monotonic()
    done = run(odd / "log", *arguments, "--timeout", 0.5)
    assert time.monotonic() - started < 40
    check_one_line(done, "has not answered for 0.5 s", "images", "Run the same command again")
    awake.touch()
    done = run(odd / "log", *arguments, "--timeout", 60)
    assert done.code == 0, done.lines
    assert results(command, out) == results(command, whole)


@pytest.mark.parametrize("seconds", [0, -1, "nan", "inf"])
def test_a_timeout_that_makes_no_sense_is_one_line(
    seconds: object, place: Workplace, tmp_path: Path
) -> None:
    done = run(tmp_path / "log", *place.predict(tmp_path), "--timeout", seconds)
    check_one_line(done, "--timeout: expected a number of seconds above 0")


@pytest.mark.parametrize("command", ["search", "compare", "predict"])
def test_a_model_that_answers_otherwise_is_refused(
    command: str, place: Workplace, odd: Path
) -> None:
    out = odd / "out"
    out.mkdir()
    arguments = of_odd(getattr(place, command)(out), "changing")
    done = run(odd / "log", *arguments, before=die_at_change(MIDDLE[command], out))
    assert done.code == -signal.SIGKILL, done.lines
    (odd / "scale").write_text("30")
    check_one_line(run(odd / "log", *arguments), "no longer answers as it did", "delete")
    (odd / "scale").write_text("1")
    done = run(odd / "log", *arguments)
    assert done.code == 0, done.lines


@pytest.mark.parametrize("command", ["search", "predict"])
def test_other_weights_under_the_same_name_are_refused(
    command: str, place: Workplace, killed: Callable[[str], Path], tmp_path: Path
) -> None:
    out = killed(command)
    weights = place.root / "model.safetensors"
    before = weights.read_bytes()
    save_small(new_small(seed=2), weights)
    done = run(tmp_path / "log", *getattr(place, command)(out))
    weights.write_bytes(before)
    check_one_line(done, "other settings", "model", "delete")
