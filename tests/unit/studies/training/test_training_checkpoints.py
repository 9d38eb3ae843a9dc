"""A training that is stopped and continued ends in the same bytes; other files are refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from relook.data import Dataset, load_data
from relook.errors import FileFormatError, RunError
from relook.models.small import new_small
from relook.policy.recipes import get_recipe
from relook.studies.training import Training, run_training

SETTINGS = Training(4, get_recipe("small"), seed=2, batch=25)


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_data("digits:train").subset(np.arange(60))


def with_dropout() -> nn.Module:
    """A network that draws in training, as VGG16 does."""
    return nn.Sequential(new_small(width=2), nn.ReLU(), nn.Dropout(0.5), nn.Linear(10, 10))


def weights(network: nn.Module) -> bytes:
    return b"".join(t.numpy().tobytes() for t in network.state_dict().values())


def stopped(network: nn.Module, digits: Dataset, state: Path, images: int) -> None:
    """Train until so many images are done, then break off in the middle of an epoch."""

    def steps(done: int, total: int, loss: float) -> None:
        if done >= images:
            raise StoppedError

    with pytest.raises(StoppedError):
        run_training(network, digits, SETTINGS, checkpoint=state, seconds=0, steps=steps)


@pytest.mark.parametrize("drawing", [False, True], ids=["small", "dropout"])
def test_stopped_and_continued_is_the_same_to_the_byte(
    digits: Dataset, tmp_path: Path, drawing: bool
) -> None:
    torch.manual_seed(0)
    network = with_dropout() if drawing else new_small(width=3)
    whole, losses = run_training(network, digits, SETTINGS)
    state = tmp_path / "state"
    torch.manual_seed(1)  # what the global generator holds does not matter
    stopped(network, digits, state, 85)
    after_one = state.read_bytes()
    stopped(network, digits, state, 200)
    assert state.read_bytes() != after_one
    seen: list[int] = []
    again, found = run_training(
        network,
        digits,
        SETTINGS,
        checkpoint=state,
        seconds=0,
        progress=lambda done, loss: seen.append(done),
    )
    assert seen == [4]
    assert found == losses
    assert weights(again) == weights(whole)
    finished, _ = run_training(network, digits, SETTINGS, checkpoint=state)
    assert weights(finished) == weights(whole)


def test_a_state_is_the_same_bytes_however_often_it_was_stopped(
    digits: Dataset, tmp_path: Path
) -> None:
    network = new_small(width=2)
    run_training(network, digits, SETTINGS, checkpoint=tmp_path / "whole")
    stopped(network, digits, tmp_path / "parts", 130)
    run_training(network, digits, SETTINGS, checkpoint=tmp_path / "parts")
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_dropout_leaves_the_global_generator_alone(digits: Dataset) -> None:
    network = with_dropout()
    state = torch.get_rng_state()
    run_training(network, digits, replace(SETTINGS, epochs=1))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_state_of_other_settings_or_data_is_refused(digits: Dataset, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run_training(new_small(width=2), digits, replace(SETTINGS, epochs=1), checkpoint=state)
    with pytest.raises(RunError, match="other data or settings"):
        run_training(new_small(width=2), digits, SETTINGS, checkpoint=state)
    with pytest.raises(RunError, match="other data or settings"):
        run_training(
            new_small(width=2, seed=1), digits, replace(SETTINGS, epochs=1), checkpoint=state
        )


def test_a_damaged_state_is_one_line(digits: Dataset, tmp_path: Path) -> None:
    state, one = tmp_path / "state", replace(SETTINGS, epochs=1)
    run_training(new_small(width=2), digits, one, checkpoint=state)
    whole = state.read_bytes()
    state.write_bytes(whole[:1000])
    with pytest.raises(FileFormatError, match="delete that file to train from the start"):
        run_training(new_small(width=2), digits, one, checkpoint=state)
    state.write_bytes(whole)
    save_file(load_file(state), state)  # without its metadata
    with pytest.raises(FileFormatError, match="has no 'relook-training-1'"):
        run_training(new_small(width=2), digits, one, checkpoint=state)
