"""The examples run, and do what they say."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

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
