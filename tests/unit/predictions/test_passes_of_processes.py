"""Processes that are killed, or work side by side, on one store of predictions."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.predictions.passes_cases import VIEWS, Toy, contents
from torch import Tensor

import relook.predictions.model_calls
from relook.predictions.passes import predict_views


@pytest.fixture(autouse=True)
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relook.predictions.model_calls, "_GROUP", 3)


CHILD = """
import sys
import numpy as np, torch
import relook.predictions.model_calls
from tests.unit.predictions.passes_cases import Toy, VIEWS
from relook.predictions.passes import predict_views

class Told(Toy):
    def __call__(self, images):
        if self.calls >= int(sys.argv[2]):
            sys.stdin.readline()  # waits to be killed
        print(self.calls, flush=True)
        return super().__call__(images)

relook.predictions.model_calls._GROUP = 3
torch.set_num_threads(1)
generator = np.random.default_rng(1)
images = torch.from_numpy(generator.integers(0, 256, (40, 1, 9, 8), dtype=np.uint8))
predict_views(Told(), images, VIEWS, seed=0, batch=2, store_path=sys.argv[1])
print("finished", flush=True)
"""


def start(store: Path, calls: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(store), str(calls)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def lines(child: subprocess.Popen[str]) -> Iterator[str]:
    assert child.stdout is not None
    for line in child.stdout:
        yield line.strip()


def forty() -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (40, 1, 9, 8), dtype=np.uint8))


def test_a_killed_process_loses_nothing_that_was_done(tmp_path: Path) -> None:
    whole, store = tmp_path / "whole", tmp_path / "killed"
    expected = predict_views(Toy(), forty(), VIEWS, seed=0, batch=2, store_path=whole)
    for last in (20, 35, 26):
        with start(store, last + 15) as child:
            for line in lines(child):
                if line == str(last):
                    child.send_signal(signal.SIGKILL)
                    break
        assert child.returncode == -signal.SIGKILL
    resumed = Toy()
    result = predict_views(resumed, forty(), VIEWS, seed=0, batch=2, store_path=store)
    np.testing.assert_array_equal(result, expected)
    kept = {name: data for name, data in contents(store).items() if ".partial" not in name}
    assert kept == contents(whole)
    assert 0 < resumed.calls <= 140 - (18 + 33 + 24)


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    children = [start(tmp_path / "store", 10**6) for _ in range(2)]
    for child in children:
        with child:
            assert list(lines(child))[-1] == "finished"
        assert child.returncode == 0
    again = Toy()
    result = predict_views(again, forty(), VIEWS, seed=0, batch=2, store_path=tmp_path / "store")
    assert again.calls == 1  # to see that the model still answers the same
    np.testing.assert_array_equal(result, predict_views(Toy(), forty(), VIEWS, seed=0, batch=2))
