"""Commands that are killed, again and again, end in the same files: docs/reliability.md."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.faults import (
    COMMANDS,
    Workplace,
    die_at_change,
    leftovers,
    new_workplace,
    results,
    run,
    run_and_signal,
    warm_up,
)

import relook.deploy.batch.prediction
import relook.predictions.store

KILLS = 25  # of each of five commands, at random moments
AT_CHANGES = 5  # of each command, in the fast test
MOST_CHANGES = 40  # of each command, in the slow one


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setattr("relook.deploy.batch.image_source.BLOCK", 8)
    warm_up()
    root = tmp_path / "inputs"
    root.mkdir()
    return new_workplace(root)


def check_whole(command: str, out: Path, whole: dict[str, object]) -> None:
    """Whatever has its final name has its final content."""
    for name, content in results(command, out).items():
        assert content == whole[name], f"{name} is half written"


def finish(command: str, place: Workplace, out: Path, whole: dict[str, object]) -> None:
    """Go on once more, to the end; nothing must be lost or left behind."""
    done = run(out.parent / "log", *getattr(place, command)(out))
    if done.code == 2 and results(command, out) == whole:
        assert "exists: give another --out, or --force" in done.last  # killed when all was done
    else:
        assert done.code == 0, done.lines
        assert not [path for path in leftovers(out) if command in ("search", "compare", "train")]
    assert results(command, out) == whole


@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_changes_of_its_files(command: str, place: Workplace, tmp_path: Path) -> None:
    arguments = getattr(place, command)
    out, counted = tmp_path / "whole", tmp_path / "count"
    out.mkdir()
    done = run(tmp_path / "log", *arguments(out), before=die_at_change(0, out, counted))
    assert done.code == 0, done.lines
    whole, changes = results(command, out), int(counted.read_text())
    assert set(whole) == set(COMMANDS[command])
    out = tmp_path / "killed"
    out.mkdir()
    moments = np.linspace(1, changes, AT_CHANGES + 1).astype(int)[:-1]
    for number in moments:
        done = run(tmp_path / "log", *arguments(out), before=die_at_change(int(number), out))
        if done.code == 2:
            break  # all was done but for tidying up
        assert done.code in (-signal.SIGKILL, 0), done.lines
        check_whole(command, out, whole)
    finish(command, place, out, whole)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_random_moments(command: str, place: Workplace, tmp_path: Path) -> None:
    arguments = getattr(place, command)
    out = tmp_path / "whole"
    out.mkdir()
    usual = 0.0
    for _ in range(2):  # the first run warms up
        shutil.rmtree(out)
        out.mkdir()
        started = time.perf_counter()
        done = run(tmp_path / "log", *arguments(out))
        usual = time.perf_counter() - started
        assert done.code == 0, done.lines
    whole = results(command, out)
    shares, kills, tries = np.random.default_rng(0), 0, 0
    while kills < KILLS:
        tries += 1
        assert tries < 10 * KILLS, "too fast to be killed"
        # Every third kill starts over, so that early and late stages are hit alike.
        out = tmp_path / f"killed-{kills // 3}"
        out.mkdir(exist_ok=True)
        after = float(shares.uniform(0.02, 0.98)) * usual
        done = run_and_signal(tmp_path / "log", after, signal.SIGKILL, *arguments(out))
        late = done.code != -signal.SIGKILL
        assert not late or done.code in (0, 2), done.lines
        kills += not late
        usual *= 0.9 if late else 1.0
        check_whole(command, out, whole)
    for out in sorted(tmp_path.glob("killed-*")):
        finish(command, place, out, whole)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_killed_at_many_changes_of_its_files(
    command: str, place: Workplace, tmp_path: Path
) -> None:
    arguments = getattr(place, command)
    out, counted = tmp_path / "whole", tmp_path / "count"
    out.mkdir()
    run(tmp_path / "log", *arguments(out), before=die_at_change(0, out, counted))
    whole, changes = results(command, out), int(counted.read_text())
    numbers = np.unique(np.linspace(1, changes, MOST_CHANGES).astype(int))
    for number in map(int, numbers):
        out = tmp_path / f"killed-{number}"
        out.mkdir()
        done = run(tmp_path / "log", *arguments(out), before=die_at_change(number, out))
        assert done.code == -signal.SIGKILL, (number, done.lines)
        check_whole(command, out, whole)
        finish(command, place, out, whole)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("command", ["search", "predict"])
def test_a_signal_ends_in_one_line_and_nothing_is_lost(
    command: str, number: int, code: int, place: Workplace, tmp_path: Path
) -> None:
    arguments = getattr(place, command)
    out = tmp_path / "whole"
    out.mkdir()
    run(tmp_path / "log", *arguments(out))
    whole = results(command, out)

    def signal_after_a_block() -> None:
        # A shell's background jobs, and so tests run as one, begin with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        store, parts = (
            relook.predictions.store.PredictionStore,
            relook.deploy.batch.prediction._PARTS,
        )
        store.write = signalled(store.write)  # type: ignore[method-assign]
        object.__setattr__(parts, "write", signalled(parts.write))  # it is frozen

    def signalled(write: Callable[..., None]) -> Callable[..., None]:
        def write_and_signal(*arguments: object) -> None:
            write(*arguments)
            os.kill(os.getpid(), number)

        return write_and_signal

    out = tmp_path / "out"
    out.mkdir()
    done = run(tmp_path / "log", *arguments(out), before=signal_after_a_block)
    assert done.code == code, done.lines
    assert "nothing is lost. Run the same command again to resume." in done.last
    assert not [line for line in done.lines if "Traceback" in line]
    finish(command, place, out, whole)
