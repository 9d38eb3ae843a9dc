"""A model that hangs ends a study in one line, as it ends the other commands: test_faults.py."""

import time
from pathlib import Path

import pytest
import torch
from tests.e2e.faults import ODD_MODEL, Workplace, check_one_line, new_workplace, run, warm_up
from torch import Tensor


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """Inputs, and a module of odd models in the directory that we are in."""
    warm_up()
    (tmp_path / "odd_models.py").write_text(ODD_MODEL)
    (tmp_path / "inputs").mkdir()
    monkeypatch.chdir(tmp_path)
    return new_workplace(tmp_path / "inputs")


_LIMITED = ("--out", "out", "--timeout", 0.5)
_POOL = ("--recipe", "small", "--pool-size", 6)
STUDIES: dict[str, tuple[object, ...]] = {
    "objectives": (*_POOL, "--length", 2),
    "magnitudes": ("--recipe", "small", "--views", 2, "--magnitudes", "0,20"),
    "ensembles": ("-m", "torch:odd_models:sound", *_POOL, "--budgets", 1, "--split", "60:40"),
    "transfer": ("-p", "inputs/policy.json", "--budgets", 1),
}


@pytest.mark.parametrize("command", STUDIES)
def test_a_model_that_hangs_ends_a_study(command: str, place: Workplace) -> None:
    given = ("study", command, "-m", "torch:odd_models:hanging", "-d", place.data)
    started = time.monotonic()
    done = run(Path("log"), *given, *STUDIES[command], *_LIMITED, "--batch", 16)
    assert time.monotonic() - started < 40
    check_one_line(done, "has not answered for 0.5 s", "images", "Run the same command again")


REPRODUCED = """
recipe = "small"
[data.digits]
train = "npz:inputs/digits.npz?layout=nchw"
test = "npz:inputs/digits.npz?layout=nchw"
split = "40:40"
test_images = 120
train_images = 120
[models.A]
network = "small:4"
[train]
augments = ["crop_flip"]
epochs = 1
batch = 40
threads = 1
[search]
length = 2
pool_size = 4
[compare]
budgets = [1]
"""


@pytest.mark.usefixtures("place")
def test_a_model_that_hangs_ends_a_whole_study() -> None:
    def hang_outside_of_training() -> None:
        forward = torch.nn.Linear.forward

        def slow(self: torch.nn.Linear, features: Tensor) -> Tensor:
            if not torch.is_grad_enabled():
                time.sleep(60)
            return forward(self, features)

        torch.nn.Linear.forward = slow  # type: ignore[assignment,method-assign]

    Path("study.toml").write_text(REPRODUCED)
    given = ("study", "run", "study.toml", "--only", "search", *_LIMITED)
    started = time.monotonic()
    done = run(Path("log"), *given, before=hang_outside_of_training)
    assert time.monotonic() - started < 40
    check_one_line(done, "has not answered for 0.5 s", "image 0", "Run the same command again")
