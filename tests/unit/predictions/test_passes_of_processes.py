"""Processes that are killed, or work side by side, on one store of predictions."""

import multiprocessing
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.unit.predictions.passes_cases import VIEWS, Toy, contents
from torch import Tensor

from relook.predictions.passes import predict_views

pytestmark = pytest.mark.usefixtures("small_groups")


class Told(Toy):
    """Tells of each call, and waits to be killed at one of them."""

    def __init__(self, waits: int, teller: Connection) -> None:
        super().__init__()
        self.waits, self.teller = waits, teller

    def __call__(self, images: Tensor) -> Tensor:
        if self.calls >= self.waits:
            signal.pause()
        self.teller.send(self.calls)
        return super().__call__(images)


def fill(store: Path, waits: int, teller: Connection) -> None:
    torch.set_num_threads(1)
    model = Told(waits, teller)
    predict_views(model, forty(), VIEWS, seed=0, batch=2, store_path=store)
    teller.send("finished")


def start(store: Path, waits: int) -> tuple[BaseProcess, Connection]:
    """Begin to fill a store in a process of its own, and return what hears of it."""
    hearer, teller = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")  # which need not import torch again
    child = context.Process(target=fill, args=(store, waits, teller))
    child.start()
    teller.close()
    return child, hearer


def wait_for(word: object, hearer: Connection) -> None:
    while hearer.recv() != word:
        pass


def forty() -> Tensor:
    generator = np.random.default_rng(1)
    return torch.from_numpy(generator.integers(0, 256, (40, 1, 9, 8), dtype=np.uint8))


def test_a_killed_process_loses_nothing_that_was_done(tmp_path: Path) -> None:
    whole, store = tmp_path / "whole", tmp_path / "killed"
    expected = predict_views(Toy(), forty(), VIEWS, seed=0, batch=2, store_path=whole)
    for last in (20, 35, 26):
        child, hearer = start(store, last + 15)
        wait_for(last, hearer)
        child.kill()
        child.join()
        hearer.close()
        assert child.exitcode == -signal.SIGKILL
    resumed = Toy()
    result = predict_views(resumed, forty(), VIEWS, seed=0, batch=2, store_path=store)
    np.testing.assert_array_equal(result, expected)
    kept = {name: data for name, data in contents(store).items() if ".partial" not in name}
    assert kept == contents(whole)
    assert 0 < resumed.calls <= 140 - (18 + 33 + 24)


def test_two_processes_fill_one_store(tmp_path: Path) -> None:
    children = [start(tmp_path / "store", 10**6) for _ in range(2)]
    for child, hearer in children:
        wait_for("finished", hearer)
        child.join()
        hearer.close()
        assert child.exitcode == 0
    again = Toy()
    result = predict_views(again, forty(), VIEWS, seed=0, batch=2, store_path=tmp_path / "store")
    assert again.calls == 1  # to see that the model still answers the same
    np.testing.assert_array_equal(result, predict_views(Toy(), forty(), VIEWS, seed=0, batch=2))
