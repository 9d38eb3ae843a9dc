"""Nothing is left open by a command, and results do not depend on how the work is cut up."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.e2e.conftest import Relook
from tests.e2e.faults import Workplace, new_workplace


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    root = tmp_path / "inputs"
    root.mkdir()
    return new_workplace(root)


def held() -> tuple[int, int, str]:
    """Return open files, threads and children of this process."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    return (
        len(list(Path("/proc/self/fd").iterdir())),
        threading.active_count(),
        children.read_text(),
    )


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("command", ["search", "compare", "predict"])
def test_no_files_threads_or_processes_are_left(
    command: str, place: Workplace, relook: Relook, tmp_path: Path
) -> None:
    arguments: Callable[[Path], tuple[object, ...]] = getattr(place, command)
    after = []
    for number in range(5):
        out = tmp_path / str(number)
        out.mkdir()
        relook.ok(*arguments(out))
        after.append(held())
    # The first run opens what stays, such as zarr's own loop. zarr's pool starts its threads when
    # it needs them and other tests' may end, so only what each run leaves is a leak.
    (files, threads, children), last = after[1], after[-1]
    assert last[0] <= files
    assert last[1] - threads < len(after) - 2
    assert last[2] == children


@pytest.mark.parametrize(("block", "threads"), [(1, 1), (7, 3), (1000, 8)])
def test_predictions_do_not_depend_on_blocks_and_threads(
    block: int,
    threads: int,
    place: Workplace,
    relook: Relook,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = list(place.predict(tmp_path / "usual"))
    relook.ok(*arguments, "--batch", 8)
    monkeypatch.setattr("relook.deploy.batch.image_source.BLOCK", block)
    monkeypatch.setattr("relook.data.decode._MOST_THREADS", threads)
    monkeypatch.setattr("os.cpu_count", lambda: threads)
    relook.ok(*place.predict(tmp_path / "other"), "--batch", 8)
    texts = [(tmp_path / name / "out.csv").read_text() for name in ("usual", "other")]
    usual, other = ([line.split(",") for line in text.splitlines()] for text in texts)
    assert usual[0] == other[0]
    for one, two in zip(usual[1:], other[1:], strict=True):
        for cell, same in zip(one, two, strict=True):
            if cell != same:  # the last digits of a model depend on its batches
                assert float(cell) == pytest.approx(float(same), abs=1e-4)
