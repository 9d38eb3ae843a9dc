from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from relook.cli.app import main
from relook.data import Dataset, load_data
from relook.models.small import new_small, save_small
from relook.policy import Policy
from relook.policy.pool import sample_pool

Words = tuple[object, ...]
"""A part of a command."""


SMALL: Words = ("--recipe", "small", "--pool-size", 6, "--length", 2)
"""A search of seconds."""


@dataclass(frozen=True)
class Finished:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Relook:
    """The command line in this process, as a user's shell would run it."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> Finished:
        self.monkeypatch.setattr("sys.argv", ["relook", *map(str, arguments)])
        self.monkeypatch.setenv("COLUMNS", "200")
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = self.capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    def ok(self, *arguments: object) -> Finished:
        """Run a command that must succeed."""
        done = self(*arguments)
        assert done.code == 0, done.err
        return done

    def refused(self, *arguments: object) -> Finished:
        """Run a command that must end with exit code 2 and without a traceback."""
        done = self(*arguments)
        assert done.code == 2, done.out
        assert "Traceback" not in done.err
        return done


@pytest.fixture
def relook(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Relook:
    return Relook(monkeypatch, capsys)


@cache
def some_digits() -> Dataset:
    """Return 240 digits."""
    return load_data("digits").subset(np.arange(240))


def save_model(directory: Path) -> str:
    """Save a small network with random weights and return its spec."""
    path = directory / "model.safetensors"
    save_small(new_small(seed=1), path)
    return f"small@{path}"


def save_data(directory: Path) -> str:
    """Save 240 digits, with a patient for each four of them, and return their spec."""
    digits, path = some_digits(), directory / "digits.npz"
    np.savez(
        path,
        images=digits.plain.numpy(),
        labels=digits.labels,
        classes=np.array(digits.classes),
        patient=np.arange(240) // 4,
    )
    return f"npz:{path}?layout=nchw"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The spec of a small network with random weights."""
    return save_model(tmp_path)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """The spec of 240 digits, with a patient for each four of them."""
    return save_data(tmp_path)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Four views, which are not calibrated."""
    path = tmp_path / "policy.json"
    Policy(sample_pool("small", 5, 0)[:4], recipe="small").save(path)
    return path


@pytest.fixture
def sources(model: str, data: str) -> Words:
    """The model and the digits as options."""
    return "--model", model, "--data", data
