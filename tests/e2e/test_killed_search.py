"""A search that is killed, again and again, ends in the same policy file, byte for byte."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import torch

from relook.data import load_data
from relook.models import TorchPredictor
from relook.models.small import new_small
from relook.policy.recipes import get_recipe
from relook.policy_search.search import search_dataset
from relook.policy_search.settings import SearchSettings

KILLS = 20
SETTINGS = SearchSettings(recipe=get_recipe("small"), length=6, pool_size=40, seed=3, batch=64)


def run(directory: Path) -> None:
    digits = load_data("digits").subset(np.arange(300))
    search_dataset(TorchPredictor(new_small(seed=1)), digits, SETTINGS, run=directory)


def run_in_child(directory: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        torch.set_num_threads(1)
        run(directory)
        os._exit(0)
    except BaseException:
        os._exit(1)


def killed_after(directory: Path, seconds: float) -> bool:
    """Run the search in a child, kill it after a while; return whether that came too late."""
    child = run_in_child(directory)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return not os.WIFSIGNALED(status)


def test_twenty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    run(whole)
    started = time.perf_counter()
    run(tmp_path / "timed")  # the first run warms up
    usual = time.perf_counter() - started

    shares = np.random.default_rng(0)
    kills = 0
    while kills < KILLS:
        # Every third kill starts over, so that early and late stages are hit alike.
        directory = tmp_path / f"killed-{kills // 3}"
        late = killed_after(directory, float(shares.uniform(0.02, 0.9)) * usual)
        kills += not late
        usual *= 0.8 if late else 1.0
    for directory in sorted(tmp_path.glob("killed-*")):
        run(directory)
        for name in ("policy.json", "search.json"):
            assert (directory / name).read_bytes() == (whole / name).read_bytes(), directory
        assert not list(directory.glob(".relook-*.tmp"))
