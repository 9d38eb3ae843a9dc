import numpy as np
import pytest
import torch
from tests.support import refused
from torch import Tensor, nn

from relook.errors import RelookError
from relook.models import EnsemblePredictor, InputSpec, Predictor, TorchPredictor
from relook.models.describe import describe_model, model_record
from relook.models.predictors import ModelOptions
from relook.models.small import new_small


def member(seed: int, classes: int = 6) -> TorchPredictor:
    return TorchPredictor(new_small(3, classes, width=2, seed=seed), mean=0.1 * seed, std=0.5)


def sized(spec: InputSpec) -> TorchPredictor:
    return TorchPredictor(nn.Flatten(), input=spec)


def test_the_probabilities_are_averaged(images: Tensor) -> None:
    members = [member(seed) for seed in (1, 2, 3)]
    got = EnsemblePredictor(members)(images)
    want = np.mean([m(images).double().exp().numpy() for m in members], axis=0)
    assert got.dtype == torch.float32
    np.testing.assert_allclose(got.double().exp().numpy(), want, rtol=1e-5)


def test_tiny_probabilities_do_not_vanish(images: Tensor) -> None:
    def sure(of: int) -> TorchPredictor:
        logits = torch.full((16, 3), -79.0)
        logits[:, of] = 0.0
        return TorchPredictor(Constant(logits))

    log_probs = EnsemblePredictor([sure(0), sure(1)])(images)
    want = np.log(np.array([0.5, 0.5, np.exp(-79.0)]))
    np.testing.assert_allclose(log_probs[0].numpy(), want, rtol=1e-5)


class Constant(nn.Module):
    """Returns the same logits whatever the images."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Buffer(logits)

    def forward(self, images: Tensor) -> Tensor:
        return self.logits[: len(images)]


def test_an_ensemble_is_a_predictor_with_a_fingerprint_of_its_members() -> None:
    one, other = member(1), member(2)
    ensemble = EnsemblePredictor([one, other])
    assert isinstance(ensemble, Predictor)
    assert ensemble.fingerprint == EnsemblePredictor([member(1), member(2)]).fingerprint
    prints = {
        one.fingerprint,
        ensemble.fingerprint,
        EnsemblePredictor([other, one]).fingerprint,
        EnsemblePredictor([one]).fingerprint,
    }
    assert len(prints) == 4


def test_members_with_other_classes_are_refused(images: Tensor) -> None:
    with pytest.raises(RelookError, match="same classes for an ensemble, got 6, 5 classes"):
        EnsemblePredictor([member(1, 6), member(2, 5)])(images)
    known = [TorchPredictor(new_small(3, n, width=2), classes=n) for n in (4, 3)]
    refused(r"got 4, 3, \? classes", EnsemblePredictor, [*known, member(1)])


def test_members_take_the_same_images() -> None:
    spec = InputSpec((224, 224), 0.95, "bicubic", 3)
    bilinear = InputSpec((224, 224), 0.95, "bilinear", 3)
    assert EnsemblePredictor([sized(spec), member(1), sized(bilinear)]).input == spec
    assert EnsemblePredictor([member(1)]).input is None
    with pytest.raises(RelookError, match=r"3×224×224 \(crop 0.95\) and 3×192×192 .*size and crop"):
        EnsemblePredictor([sized(spec), sized(InputSpec((192, 192), 0.95, "bicubic", 3))])
    refused("at least one model", EnsemblePredictor, [])


def test_what_a_model_does_to_its_images_is_told() -> None:
    spec = InputSpec((224, 192), 0.95, "bicubic", 3)
    options = ModelOptions(mean=(0.485, 0.456, 0.406), std=0.25)
    one = options.predictor(nn.Flatten(), known=spec, classes=10)
    text = "10 classes, images of 224×192, mean 0.485 0.456 0.406, std 0.25, logits"
    assert describe_model(one) == text
    assert model_record(one) == {
        "classes": 10,
        "input": {"size": (224, 192), "crop": 0.95, "interpolation": "bicubic", "channels": 3},
        "mean": (0.485, 0.456, 0.406),
        "std": 0.25,
        "outputs": "logits",
    }
    both = EnsemblePredictor([one, one])
    assert describe_model(both) == f"the mean of 2 models: {text}; {text}"
    assert model_record(both) == {"members": [model_record(one)] * 2}


@pytest.mark.parametrize(
    ("size", "crop", "how", "message"),
    [
        ((0, 224), 1.0, "bicubic", r"expected a size \(height, width\)"),
        ((224, 224), 0.0, "bicubic", "expected a crop share"),
        ((224, 224), 1.5, "bicubic", "expected a crop share"),
        ((224, 224), 1.0, "cubic", "did you mean 'bicubic'"),
    ],
)
def test_an_input_that_makes_no_sense_is_refused(
    size: tuple[int, int], crop: float, how: str, message: str
) -> None:
    refused(message, InputSpec, size, crop, how)
