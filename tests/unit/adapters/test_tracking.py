import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support import refused
from tests.unit.report.example_run import write_example_run

from relook.adapters import tracking
from relook.adapters.tracking import check_tracker, log_run
from relook.errors import install_command


class Recorder(ModuleType):
    """A module that takes any call, and notes it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self.summary: dict[str, Any] = {}
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args: Any, **how: Any) -> Any:
            self.calls.append((name, args, how))
            return self

        return call

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append(("exit", (), {}))

    def named(self, name: str) -> list[tuple[Any, ...]]:
        return [args for one, args, _ in self.calls if one == name]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_example_run(tmp_path / "run")


def test_a_run_in_tensorboard(run: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert log_run(run, "tensorboard")
    found = EventAccumulator(str(run / "tensorboard"))
    found.Reload()
    views = {one.step for one in found.Scalars("gps/cll")}
    assert len(views) > 1
    assert max(views) <= 20
    assert {"verdict/text_summary", "settings/text_summary"} <= set(found.Tags()["tensors"])
    assert (run / "report.html").is_file()


def test_a_run_in_mlflow(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = Recorder("mlflow")
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    assert log_run(run, "mlflow")
    assert mlflow.calls[0] == ("start_run", (), {"run_name": "run"})
    (parameters,) = mlflow.named("log_params")
    assert parameters[0]["recipe"] == "small"
    (tags,) = mlflow.named("set_tags")
    assert tags[0]["verdict.outcome"] == "helps"
    steps = {how["step"] for one, args, how in mlflow.calls if args[:1] == ("gps/cll",)}
    assert len(steps) > 1
    assert mlflow.named("log_artifact") == [(str(run / "report.html"),)]
    assert mlflow.calls[-1][0] == "exit"


def test_a_run_in_wandb(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = Recorder("wandb")
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    assert log_run(run, "wandb")
    assert wandb.summary["verdict/outcome"] == "helps"
    logged = [one[0] for one in wandb.named("log")]
    assert [one["views"] for one in logged] == sorted(one["views"] for one in logged)
    assert sum("gps/cll" in one for one in logged) > 1
    assert wandb.named("add_file") == [(str(run / "report.html"),)]


def test_a_tracker_that_fails_is_one_warning(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> None:
        raise OSError("no route to host\nand more")

    monkeypatch.setattr(tracking, "TRACKERS", {"tensorboard": fails})
    monkeypatch.setattr(tracking, "find_spec", lambda name: name)
    with pytest.warns(UserWarning, match="nothing was logged to tensorboard: OSError: no route to"):
        assert not log_run(run, "tensorboard")


def test_what_is_missing_is_said_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "find_spec", lambda name: None)
    command = re.escape(install_command("wandb"))
    refused(f"needs wandb, which is not installed: run  {command}", check_tracker, "wandb")
    refused("unknown tracker 'mlflw': did you mean 'mlflow'", check_tracker, "mlflw")
