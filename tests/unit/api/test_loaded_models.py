"""A loaded run goes on as it was searched: the recorded keywords hold for what is given again."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support import refused
from torch import nn

import relook
from relook.data import load_data
from relook.errors import RelookWarning
from relook.models import CallablePredictor, TorchPredictor
from relook.models.onnx_runtime import CPU
from relook.models.small import new_small, save_small

QUICK: Any = {"recipe": "small", "pool_size": 4, "length": 2, "progress": False}
FEW: Any = {"budgets": (1, 2), "methods": ("cf",), "measure_cost": False, "progress": False}
DIGITS = load_data("digits").subset(np.arange(90))
NORMALISED: Any = {"mean": 0.3, "std": 0.2}

pytestmark = [
    pytest.mark.filterwarnings("ignore:only .* images"),
    pytest.mark.filterwarnings("ignore:.*which is chance"),
    pytest.mark.filterwarnings("ignore:the model takes"),
]


def searched(run: Path, model: object = None, **how: Any) -> relook.FoundPolicy:
    network = new_small(seed=1) if model is None else model
    return relook.search(network, DIGITS.plain, DIGITS.labels, out=run, **QUICK, **how)


def loaded(run: Path, model: object = None, **how: Any) -> relook.FoundPolicy:
    network = new_small(seed=1) if model is None else model
    return relook.load(run, network, DIGITS.plain, DIGITS.labels, **how)


def plain_cll(comparison: relook.Comparison) -> float:
    row = comparison.row("plain", 1)
    assert row is not None
    return row.metrics["cll"].mean


@pytest.mark.parametrize("given", [NORMALISED, {"mean": (0.3,), "std": [0.2]}])
def test_mean_and_std_are_the_search_s(tmp_path: Path, given: dict[str, Any]) -> None:
    first = searched(tmp_path, **given)
    again = loaded(tmp_path)
    assert again.predictor.fingerprint == first.predictor.fingerprint
    assert plain_cll(again.compare(**FEW)) == pytest.approx(plain_cll(first.comparison), abs=1e-6)
    images = DIGITS.plain[:5]
    expected = first.tta(method="policy").predict_proba(images)
    np.testing.assert_array_equal(again.tta(method="policy").predict_proba(images), expected)


def test_a_keyword_that_differs_overrides_with_a_warning(tmp_path: Path) -> None:
    searched(tmp_path, **NORMALISED)
    told = r"was searched with mean 0\.3, not mean 0\.5: its figures do not hold"
    with pytest.warns(RelookWarning, match=told):
        model: Any = loaded(tmp_path, mean=0.5).predictor
    assert model.normalisation == (0.5, 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded(tmp_path, mean=[0.3], device="cpu").predictor
    with pytest.warns(RelookWarning, match=r"mean 0\.3, std 0\.2, not mean 0\.0, std 1\.0"):
        assert loaded(tmp_path, TorchPredictor(new_small(seed=1))).predictor


class Probabilities(nn.Module):
    """The small network with a softmax at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.network = new_small(seed=1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.network(images)
        return found.softmax(dim=1)


def by_function(images: torch.Tensor) -> Any:
    return Probabilities().eval()((images / 255 - 0.3) / 0.2)


def test_outputs_are_the_search_s(tmp_path: Path) -> None:
    first = searched(tmp_path, Probabilities(), outputs="probabilities", **NORMALISED)
    assert loaded(tmp_path, Probabilities()).predictor.fingerprint == first.predictor.fingerprint
    by_itself = loaded(tmp_path, by_function).predictor  # it takes outputs, but no mean
    images = DIGITS.plain[:5]
    torch.testing.assert_close(by_itself(images), first.predictor(images))


def test_models_that_bring_their_own_load_without_the_keywords(tmp_path: Path) -> None:
    network, images = new_small(seed=1), DIGITS.plain[:5]
    first = searched(tmp_path / "run", **NORMALISED)
    own = TorchPredictor(network, **NORMALISED)
    function = CallablePredictor(own, outputs="log_probs")
    for model in (own, function, [network, own]):
        predictor = loaded(tmp_path / "run", model).predictor
        torch.testing.assert_close(predictor(images), first.predictor(images))
    save_small(network, tmp_path / "net.safetensors")
    with pytest.warns(RelookWarning, match=r"mean 0\.3, std 0\.2, not mean 0\.0, std 1\.0"):
        assert loaded(tmp_path / "run", f"small@{tmp_path}/net.safetensors").predictor
    refused("expected no mean with a", lambda: loaded(tmp_path / "run", own, mean=0.3).predictor)


def test_onnx_models_load_with_the_keywords_that_they_take(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    searched(tmp_path / "run", Probabilities(), outputs="probabilities", **NORMALISED)
    file = tmp_path / "model.onnx"
    relook.export(
        *(Probabilities(), "preset:plain", file),
        **NORMALISED,
        outputs="probabilities",
        size=32,
        channels=1,
        temperature=None,
    )
    run = loaded(tmp_path / "run", file)  # of uint8 images, with its mean and std inside
    first = TorchPredictor(Probabilities(), outputs="probabilities", **NORMALISED)
    images = DIGITS.plain[:1]
    torch.testing.assert_close(run.predictor(images), first(images), rtol=1e-4, atol=1e-4)
    session = onnxruntime.InferenceSession(file, providers=[CPU])
    (name,) = (one.name for one in session.get_outputs()[:1])
    kept = searched(tmp_path / "session", session, outputs="probabilities", output=name)
    again = loaded(tmp_path / "session", session)
    assert again.predictor.fingerprint == kept.predictor.fingerprint


def test_names_and_sizes_of_images_are_the_search_s(tmp_path: Path) -> None:
    names = tuple(f"digit {i}" for i in range(10))
    first = searched(tmp_path, classes=names, size=16)
    again = loaded(tmp_path)
    assert again.compare(**FEW).classes == names
    assert again.comparison.settings["data"] == first.comparison.settings["data"]
    others = load_data("digits").subset(np.arange(200, 290))
    first.compare(others.plain[..., ::2, ::2], others.labels, **FEW)  # which have no names
    for found in (first, relook.load(tmp_path, new_small(seed=1))):
        assert found.comparison.images == 90
        assert set(found.tta(method="policy").predict(DIGITS.plain[:3, :, ::2, ::2])) <= set(names)


@pytest.mark.parametrize("cross_fit", [True, False])
def test_groups_are_asked_for(tmp_path: Path, cross_fit: bool) -> None:
    groups = np.arange(90) // 2
    first = searched(tmp_path, groups=groups, cross_fit=cross_fit)
    refused("was searched with groups: give them too", loaded(tmp_path).compare, **FEW)
    again = loaded(tmp_path, groups=groups).compare(**FEW)
    assert again.settings["data"] == first.comparison.settings["data"]


def test_a_misspelt_keyword_is_named(tmp_path: Path) -> None:
    searched(tmp_path)
    refused("unknown keyword of relook.load 'meen': did you mean 'mean'", loaded, tmp_path, meen=1)
