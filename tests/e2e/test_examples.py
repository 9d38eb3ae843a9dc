"""The examples run, and do what they say."""

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

from relook.data import Preparation, load_data
from relook.models import load_model

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str, *packages: str) -> dict[str, Any]:
    """Run an example's module; packages that it needs must be there."""
    with warnings.catch_warnings():  # what they say while they are imported is not ours
        warnings.simplefilter("ignore")
        for package in packages:
            pytest.importorskip(package, reason=f"needs {package}")
    return runpy.run_path(str(EXAMPLES / name))


def test_a_timm_model(capsys: pytest.CaptureFixture[str]) -> None:
    load("timm_model.py", "timm")
    assert capsys.readouterr().out.startswith("torch.Size([2, 10])")


@pytest.mark.filterwarnings("ignore::Warning:lightning")
@pytest.mark.filterwarnings("ignore:.*dataloader.*:UserWarning")
def test_a_lightning_module() -> None:
    accuracy = load("lightning_module.py", "lightning")["main"](epochs=3)
    assert accuracy > 0.7


def test_what_the_tutorial_starts_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    load("tutorial_data.py", "timm")["main"](epochs=1)
    digits = load_data("folder:digits", Preparation(size=(32, 32), channels=3))
    assert digits.classes == tuple("0123456789")
    assert len(digits) == 1497
    assert load_model("timm:resnet10t@weights.safetensors", size=32)
