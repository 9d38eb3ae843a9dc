"""The examples run, and do what they say."""

import runpy
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tests.unit.models.model_files import save_hf

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


@pytest.mark.filterwarnings("ignore::Warning:lightning")
@pytest.mark.filterwarnings("ignore:.*dataloader.*:UserWarning")
def test_a_lightning_callback() -> None:
    metrics = load("lightning_callback.py", "lightning")["main"](steps=40)
    assert set(metrics) == {"test_accuracy", "test_tta_accuracy", "test_tta_ll"}
    assert metrics["test_tta_accuracy"] > 0.3
    assert metrics["test_tta_ll"] > -2.3  # better than guessing: the temperature is fitted


@pytest.mark.filterwarnings("ignore::Warning:transformers")
def test_a_hugging_face_pipeline(tmp_path: Path) -> None:
    save_hf(tmp_path / "net")
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8))
    run = load("huggingface_pipeline.py", "transformers")["main"]
    found = run(str(tmp_path / "net"), picture)
    scores = [one["score"] for one in found]
    assert sorted(found[0]) == ["label", "score"]
    assert scores == sorted(scores, reverse=True)
    plain = run(str(tmp_path / "net"), picture, "plain")
    usual = transformers_pipeline(tmp_path / "net")(picture)
    assert [one["label"] for one in plain] == [one["label"] for one in usual]
    got, wanted = ([one["score"] for one in both] for both in (plain, usual))
    np.testing.assert_allclose(got, wanted, atol=2e-3)  # rounded to grey levels
    assert [one["score"] for one in found] != got


def transformers_pipeline(model: Path) -> Any:
    from transformers import pipeline

    return pipeline("image-classification", model=str(model))


def test_what_the_tutorial_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    load("tutorial_data.py", "timm")["main"](epochs=1)
    epoch, made = capsys.readouterr().out.splitlines()
    assert epoch.startswith("epoch 1 of 1: loss ")
    assert made == "weights.safetensors, and 1,497 images in digits/"
    digits = load_data("folder:digits", Preparation(size=(32, 32), channels=3))
    assert digits.classes == tuple("0123456789")
    assert len(digits) == 1497
    assert load_model("timm:resnet10t@weights.safetensors", size=32)
